"""Streaming decoder: whole characters only, nothing twice, nothing lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginecore_models.tokenizer import load_tokenizer
from tests.models import tiny

REPLACEMENT = "\ufffd"
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
FAMILY = "👩‍👩‍👧"


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    backend = tiny.byte_level_tokenizer()
    return backend, load_tokenizer(str(tiny.write_tokenizer(tmp_path_factory.mktemp("level"), backend)))


@pytest.fixture(scope="module")
def byte_fallback(tmp_path_factory):
    backend = tiny.byte_fallback_tokenizer()
    return backend, load_tokenizer(str(tiny.write_tokenizer(tmp_path_factory.mktemp("fallback"), backend)))


@pytest.fixture(scope="module", params=["byte_level", "byte_fallback"])
def pair(request):
    return request.getfixturevalue(request.param)


def stream(tokenizer, ids, prompt=(), **options):
    decoder = tokenizer.decode_stream(prompt, **options)
    return [decoder.step(token) for token in ids]


def text_of(pieces):
    return "".join(piece for piece in pieces if piece is not None)


@pytest.mark.parametrize("text", ["é", "世", "👍", FAMILY, "a世界b", f"x{FAMILY}y", "🇩🇪 ok"])
def test_a_character_comes_with_its_last_byte(pair, text):
    backend, tokenizer = pair
    pieces = stream(tokenizer, tiny.byte_tokens(backend, text.encode()))
    assert [piece for piece in pieces if piece is not None] == list(text)
    ends = [len(text[: i + 1].encode()) - 1 for i in range(len(text))]
    assert [i for i, piece in enumerate(pieces) if piece is not None] == ends


def test_a_token_may_end_one_character_and_begin_another(byte_level):
    """Tokens that hold the tail of one character and the head of the next, as CJK vocabularies have them."""
    _, tokenizer = byte_level
    ids = tokenizer.encode("世界世界 👩‍👩‍👧", add_special_tokens=False)
    pieces = stream(tokenizer, ids)
    assert text_of(pieces) == "世界世界 👩‍👩‍👧"
    assert all(REPLACEMENT not in piece for piece in pieces if piece)


@pytest.mark.parametrize("cut", [1, 2])
def test_a_prompt_that_ends_within_a_character_is_not_given_again(pair, cut):
    backend, tokenizer = pair
    data = "世".encode()
    prompt = [*tokenizer.encode("hello there "), *tiny.byte_tokens(backend, data[:cut])]
    pieces = stream(tokenizer, [*tiny.byte_tokens(backend, data[cut:]), *tiny.byte_tokens(backend, b"ab")], prompt)
    assert pieces == [*[None] * (2 - cut), "世", "a", "b"]


def test_a_prompt_that_ends_in_a_byte_of_no_character_is_not_given_again(pair):
    backend, tokenizer = pair
    prompt = [*tokenizer.encode("hello"), *tiny.byte_tokens(backend, b"\xff")]
    assert (
        text_of(stream(tokenizer, backend.encode("the th", add_special_tokens=False).ids, prompt)).strip() == "the th"
    )


def test_a_word_after_a_prompt_keeps_its_space(pair):
    backend, tokenizer = pair
    prompt = tokenizer.encode("the fox")
    token = next(filter(None, map(backend.token_to_id, ("Ġthe", "▁the"))))
    assert stream(tokenizer, [token], prompt) == [" the"]


def test_the_first_word_of_a_text_has_no_space(byte_fallback):
    _, tokenizer = byte_fallback
    assert text_of(stream(tokenizer, tokenizer.encode("the fox"))) == "the fox"


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 30, 1000])
def test_only_the_end_of_the_prompt_matters(pair, length):
    """A prompt of byte tokens only, where every window begins within a character."""
    backend, tokenizer = pair
    prompt = tiny.byte_tokens(backend, ("世" * length).encode())
    pieces = stream(tokenizer, tiny.byte_tokens(backend, "界".encode()), prompt)
    assert pieces == [None, None, "界"]


def test_special_tokens_are_skipped_or_shown(pair):
    backend, tokenizer = pair
    end = backend.token_to_id("</s>")
    ids = [*tiny.byte_tokens(backend, b"a"), end, *tiny.byte_tokens(backend, b"b"), end]
    assert stream(tokenizer, ids) == ["a", None, "b", None]
    assert text_of(stream(tokenizer, ids, skip_special_tokens=False)) == "a</s>b</s>"


def test_a_prompt_of_special_tokens_only_is_no_text(pair):
    backend, tokenizer = pair
    start = backend.token_to_id("<s>")
    assert stream(tokenizer, tiny.byte_tokens(backend, b"ab"), [start] * 20) == ["a", "b"]


def test_bytes_of_no_character_do_not_take_text_back(byte_fallback):
    """Byte-fallback decoders change earlier text then; the library's stream fails on it."""
    backend, tokenizer = byte_fallback
    ids = [*tiny.byte_tokens(backend, "世".encode() + b"\xff"), *backend.encode("th", add_special_tokens=False).ids]
    assert text_of(stream(tokenizer, ids)) == f"世{REPLACEMENT} th"


def held_back(tokenizer, ids, pieces):
    """Tokens whose text is still open at the end."""
    last = max((i for i, piece in enumerate(pieces) if piece), default=-1)
    return tokenizer.decode(ids[last + 1 :])


@settings(max_examples=300, deadline=None)
@given(ids=st.lists(st.integers(0, 319), max_size=40))
def test_any_tokens_stream_to_their_whole_text(byte_level, ids):
    _, tokenizer = byte_level
    pieces = stream(tokenizer, ids)
    assert text_of(pieces) + held_back(tokenizer, ids, pieces) == tokenizer.decode(ids)


@settings(max_examples=300, deadline=None)
@given(prompt=st.lists(st.integers(0, 319), max_size=40), ids=st.lists(st.integers(0, 319), max_size=20))
def test_any_prompt_and_tokens_stream_to_what_the_tokens_add(byte_level, prompt, ids):
    _, tokenizer = byte_level
    before, after = tokenizer.decode(prompt), tokenizer.decode([*prompt, *ids])
    text = text_of(stream(tokenizer, ids, prompt))
    # a character that the prompt left open is the only thing that the tokens change
    known = before if after.startswith(before) else before[: -len(REPLACEMENT)]
    assert after.startswith(known + text)
    assert set(after[len(known) + len(text) :]) <= {REPLACEMENT} or after.endswith(REPLACEMENT)


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=30), split=st.integers(0, 60))
def test_any_text_streams_to_itself_after_any_part_of_it(pair, text, split):
    _, tokenizer = pair
    ids = tokenizer.encode(text)
    prompt, rest = ids[:split], ids[split:]
    whole = tokenizer.decode(ids)
    pieces = stream(tokenizer, rest, prompt)
    streamed = text_of(pieces) + held_back(tokenizer, rest, pieces)
    assert whole.endswith(streamed)
    assert tokenizer.decode(prompt).rstrip(REPLACEMENT) == whole[: len(whole) - len(streamed)].rstrip(REPLACEMENT)


fallback_tokens = st.lists(st.sampled_from([*range(3 + 0x80, 3 + 0x100), *range(259, 290)]), max_size=40)


@settings(max_examples=300, deadline=None)
@given(prompt=fallback_tokens, ids=fallback_tokens)
def test_bytes_of_no_character_lose_no_letter(byte_fallback, prompt, ids):
    _, tokenizer = byte_fallback
    letters = "".join(tokenizer.decode([token]) for token in ids if token >= 259).replace(" ", "")
    assert "".join(letter for letter in text_of(stream(tokenizer, ids, prompt)) if letter in ALPHABET) == letters


@pytest.mark.model
@settings(max_examples=100, deadline=None)
@given(ids=st.lists(st.integers(0, 49151), max_size=40))
def test_any_tokens_of_the_packaged_model_stream_to_their_whole_text(packaged, ids):
    pieces = stream(packaged, ids)
    assert text_of(pieces) + held_back(packaged, ids, pieces) == packaged.decode(ids)


@pytest.fixture(scope="module")
def packaged(packaged_gguf):
    return load_tokenizer("smollm2-135m")
