import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from enginecore.errors import InvariantError
from enginecore.kv_cache import BlockHasher
from enginecore.request import CacheIdentity
from tests.kv_cache.making import make_request

SEED = b"s" * 32


def hashes(tokens, block_size=2, seed=SEED, **identity):
    request = make_request(tokens, **identity)
    BlockHasher(block_size, seed).extend(request, len(tokens) // block_size)
    return request.block_hashes


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([65, 2], [321, 2]),  # equal in their low 8 bits
        ([1, 0], [1 + (1 << 32), 0]),  # and in 32
        ([-1, 0], [(1 << 32) - 1, 0]),
        ([131, 4], [100, 5]),  # a + 31, b - 1: equal under a polynomial hash
        ([1, 2], [2, 1]),
        ([1, 11], [11, 1]),
        ([1, 256], [256, 1]),
        ([0, 0], [0, 1]),
    ],
)
def test_case_43_different_tokens_have_different_hashes(one, other):
    assert hashes(one) != hashes(other)


def test_case_43_a_hash_covers_every_token_before_its_block():
    one, other = hashes([1, 2, 3, 4, 5, 6]), hashes([9, 2, 3, 4, 5, 6])
    assert len(one) == len(other) == 3
    assert not set(one) & set(other)


def test_case_43_a_block_moved_to_another_place_has_another_hash():
    first, second = hashes([7, 8, 7, 8])
    assert first != second


def test_case_43_hashes_cannot_be_predicted_without_the_seed():
    assert not set(hashes([1, 2, 3, 4])) & set(hashes([1, 2, 3, 4], seed=b"t" * 32))


def test_case_43_two_processes_with_one_hash_seed_draw_different_secrets():
    script = (
        "from tests.kv_cache.making import *\n"
        "manager, request = make_manager(4), make_request(range(9))\n"
        "manager.peek_cached_tokens(request)\n"
        "print(request.block_hashes[0].hex())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": "0"},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
        ).stdout
        for _ in range(2)
    }
    assert len(printed) == 2
    assert all(len(line.strip()) == 64 for line in printed)


def test_equal_tokens_and_identity_have_equal_hashes_whatever_else_differs():
    request, other = make_request([1, 2, 3, 4, 5], "a", salt="x"), make_request([1, 2, 3, 4], "b", salt="x")
    hasher = BlockHasher(2, SEED)
    hasher.extend(request, 2)
    hasher.extend(other, 2)
    assert request.block_hashes == other.block_hashes


def test_hashes_grown_one_by_one_are_those_made_at_once():
    request = make_request([1, 2, 3])
    hasher = BlockHasher(2, SEED)
    hasher.extend(request, 1)
    request.append([4, 5, 6, 7])
    hasher.extend(request, 2)
    hasher.extend(request, 3)
    hasher.extend(request, 1)
    assert request.block_hashes == hashes([1, 2, 3, 4, 5, 6])


def test_case_44_parts_of_the_identity_never_mix():
    parts = [None, "", "x", "y", "-", "+", "salt", "adapter", "adapter-", "\ud800", "a", "aadapter+x", "xadapter+y"]
    hasher = BlockHasher(2, SEED)
    roots = {hasher.root(CacheIdentity(salt, adapter)) for salt, adapter in itertools.product(parts, parts)}
    assert len(roots) == len(parts) ** 2


def test_a_block_that_is_not_full_of_known_tokens_is_not_hashed():
    request = make_request([1, 2, 3])
    with pytest.raises(InvariantError, match="3 known tokens: 2 blocks of 2 tokens"):
        BlockHasher(2, SEED).extend(request, 2)
    assert request.block_hashes == []
