"""The shape of the tree, and keys that are tokens."""

import itertools

import pytest

from enginecore.errors import InvariantError
from enginecore.kv_cache import Content
from enginecore_kv_cache.radix_tree import RadixTree, TokenKeys
from tests.kv_cache.making import make_request


def keys_of(word):
    return [letter.encode() for letter in word]


def add(tree, word):
    """Make a path known, one block per letter. Returns its contents."""
    parent, path = None, []
    for block, key in enumerate(keys_of(word)):
        parent = tree.add(Content(block, key, parent, 0))
        path.append(parent)
        tree.check_invariants()
    return path


def found(tree, word, limit=None):
    keys = keys_of(word)
    contents = tree.find(keys, len(keys) if limit is None else limit)
    assert tree.count(keys, len(keys) if limit is None else limit) == len(contents)
    return "".join(content.key.decode() for content in contents)


@pytest.fixture
def tree():
    return RadixTree()


def test_the_longest_known_prefix_is_found(tree):
    add(tree, "abcdef")
    assert [found(tree, word) for word in ("abcdef", "abcx", "abcdefgh", "xabc", "a", "")] == [
        "abcdef", "abc", "abcdef", "", "a", "",
    ]  # fmt: skip
    assert found(tree, "abcdef", limit=4) == "abcd"


def test_what_diverges_splits_a_span_and_both_ends_are_found(tree):
    first, second = add(tree, "abcd"), add(tree, "abxy")
    assert first[:2] == second[:2]
    assert (found(tree, "abcd"), found(tree, "abxy"), found(tree, "abz")) == ("abcd", "abxy", "ab")
    third = add(tree, "axyz")
    assert third[:1] == first[:1]
    assert {found(tree, word) for word in ("abcd", "abxy", "axyz")} == {"abcd", "abxy", "axyz"}
    assert len(list(tree)) == 4 + 2 + 3


def test_what_is_known_already_is_returned_and_not_replaced(tree):
    path = add(tree, "abc")
    assert add(tree, "abc") == path
    assert add(tree, "ab") == path[:2]
    assert len(list(tree)) == 3


def test_the_last_leaf_is_forgotten_first_and_nothing_is_left(tree):
    first, second = add(tree, "abcd"), add(tree, "abx")
    with pytest.raises(InvariantError, match="cannot be forgotten before what is behind it"):
        tree.remove(first[1])
    for content, left in ((first[3], "abc"), (first[2], "ab"), (second[2], "ab")):
        tree.remove(content)
        tree.check_invariants()
        assert found(tree, "abcd") == left
    again = add(tree, "abq")
    assert again[:2] == first[:2]
    for content in (again[2], first[1], first[0]):
        tree.remove(content)
        tree.check_invariants()
    assert list(tree) == []
    assert add(tree, "abcd") != first


def test_a_shorter_path_that_grows_between_branches(tree):
    """A content behind a node with children starts a child; behind a leaf it lengthens the leaf."""
    add(tree, "ab")
    for word in ("abc", "abd", "abcc", "abdd", "abcde", "abde"):
        add(tree, word)
    for word in ("abcc", "abcde", "abdd", "abde"):
        assert found(tree, word) == word
    assert len(list(tree)) == len("ab" + "c" + "d" + "c" + "d" + "de" + "e")


def test_everything_is_forgotten_at_once(tree):
    add(tree, "abcd")
    tree.clear()
    assert found(tree, "abcd") == ""
    assert list(tree) == []


def test_all_words_over_two_letters(tree):
    words = ["".join(letters) for n in range(1, 6) for letters in itertools.product("ab", repeat=n)]
    for word in words[::-3] + words[::2]:
        add(tree, word)
    known = {word[:n] for word in words[::-3] + words[::2] for n in range(1, 6)}
    assert len(list(tree)) == len(known)
    for word in words:
        assert found(tree, word) == max((word[:n] for n in range(6) if not n or word[:n] in known), key=len)


# -- keys --


def keys(tokens, block_size=2, **identity):
    request = make_request(tokens, **identity)
    TokenKeys(block_size).extend(request, len(tokens) // block_size)
    return request.block_hashes


def test_keys_grown_one_by_one_are_those_made_at_once():
    request, maker = make_request([1, 2, 3]), TokenKeys(2)
    maker.extend(request, 1)
    request.append([4, 5, 6, 7])
    for num_blocks in (2, 3, 1):
        maker.extend(request, num_blocks)
    assert request.block_hashes == keys([1, 2, 3, 4, 5, 6])


def test_case_44_only_the_first_key_says_whose_they_are_and_parts_never_mix():
    parts = [None, "", "x", "-", "+", "adapter-", "\ud800", "aadapter+x"]
    made = [keys([1, 2, 3, 4], salt=salt, adapter=adapter) for salt, adapter in itertools.product(parts, parts)]
    assert len({first for first, _ in made}) == len(parts) ** 2
    assert len({second for _, second in made}) == 1


def test_a_block_that_is_not_full_of_known_tokens_has_no_key():
    request = make_request([1, 2, 3])
    with pytest.raises(InvariantError, match="3 known tokens: 2 blocks of 2 tokens"):
        TokenKeys(2).extend(request, 2)
    assert request.block_hashes == []
