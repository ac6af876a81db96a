from hypothesis import given
from hypothesis import strategies as st

from enginecore.frontend.stop_strings import StopStringMatcher

texts = st.text("abc", max_size=30)
stop_lists = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4)


def first_completed(text, stops, start=0):
    """By trying every end: where the first completed stop string ends, and the longest that ends there."""
    for end in range(start + 1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return end, max(ending, key=len)
    return None


@given(text=texts, stops=stop_lists, cuts=st.lists(st.integers(1, 5), max_size=30))
def test_the_first_completed_stop_string_is_found_however_the_text_is_cut(text, stops, cuts):
    matcher, held, read, found = StopStringMatcher(stops), "", 0, None
    for size in [*cuts, len(text)]:
        piece = text[read : read + size]
        held, end, stop = matcher.find(held, piece)
        if stop is not None:
            found = read + end, stop
            break
        read += len(piece)
    assert found == first_completed(text, stops)


@given(text=texts, stops=stop_lists)
def test_no_more_is_held_than_what_begins_a_stop_string(text, stops):
    matcher = StopStringMatcher(stops)
    held, _, stop = matcher.find("", text)
    if stop is None:
        beginnings = [n for n in range(len(text) + 1) if any(s.startswith(text[len(text) - n :]) for s in stops)]
        assert len(held) == max(beginnings)


@given(before=texts, after=texts, stops=stop_lists)
def test_what_is_passed_over_does_not_count_but_may_begin_a_stop_string(before, after, stops):
    matcher = StopStringMatcher(stops)
    held, _, stop = matcher.pass_over("", before)
    assert stop is None
    assert before.endswith(held)
    assert not held or any(len(s) > len(held) and s.startswith(held) for s in stops)
    _, end, stop = matcher.find(held, after)
    expected = first_completed(before + after, stops, start=len(before))
    assert (None if stop is None else (len(before) + end, stop)) == expected
