"""What prompts hold: tokens and block hashes, which must tell the same of any two requests."""

import itertools
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginecore.errors import ConfigurationError
from enginecore.messages import EngineInfo
from enginecore_lab.workloads import longest_output, to_engine_request, workload_hash
from enginecore_lab.workloads.content import block_hashes, token_ids
from tests.lab.workloads.making import asked, synthetic, workload

VOCABULARY = 50_000


def tokens(request: Any, block_size: int = 4) -> list[int]:
    made: list[int] = token_ids(request, block_size, VOCABULARY).tolist()
    return made


def info(**fields: Any) -> EngineInfo:
    return EngineInfo(
        **{
            "model": "m",
            "max_model_len": 1000,
            "vocab_size": VOCABULARY,
            "eos_token_ids": [],
            "num_blocks": 10,
            "block_size": 4,
            "max_num_seqs": 4,
            "max_num_batched_tokens": 100,
            "enable_prefix_caching": True,
            "enable_chunked_prefill": True,
            "max_concurrent_batches": 1,
            "components": {},
            "seed": 0,
            **fields,
        }
    )


def test_equal_ids_are_equal_tokens_and_others_are_not():
    a, b = asked("a", prompt=10, hash_ids=(1, 2, 3)), asked("b", prompt=12, hash_ids=(1, 3, 3))
    assert (len(tokens(a)), len(tokens(b))) == (10, 12)
    assert tokens(a)[:4] == tokens(b)[:4]
    assert tokens(b)[4:8] == tokens(b)[8:12]
    assert tokens(a)[8:] == tokens(b)[8:10]
    assert tokens(a)[4:8] != tokens(b)[4:8]
    assert all(0 <= token < VOCABULARY for token in tokens(a))


def test_without_ids_a_prompt_is_like_no_others():
    a, b = asked("a", prompt=400), asked("b", prompt=400)
    assert tokens(a) == tokens(a)
    assert sum(one == other for one, other in zip(tokens(a), tokens(b), strict=True)) < 5
    assert not set(block_hashes(a, 0, 16)) & set(block_hashes(b, 0, 16))
    assert len(set(block_hashes(a, 0, 16))) == 25


def test_behind_its_ids_a_prompt_is_like_no_others():
    a, b = asked("a", prompt=21, hash_ids=(1,)), asked("b", prompt=21, hash_ids=(1,))
    assert [x == y for x, y in zip(block_hashes(a, 8, 4), block_hashes(b, 8, 4), strict=True)] == [1, 1, 0, 0, 0]
    assert [x == y for x, y in zip(tokens(a, 8), tokens(b, 8), strict=True)][:8] == [True] * 8
    assert tokens(a, 8)[8:] != tokens(b, 8)[8:]


@pytest.mark.parametrize(
    ("prompt", "output", "num_ids", "size", "num_hashes"),
    [
        (1030, 5, 3, 512, 2),  # only full blocks count
        (1030, 5, 3, 16, 64),
        (1024, 5, 2, 16, 64),
        (1023, 5, 2, 16, 63),
        (1030, 506, 3, 512, 2),
        (1030, 1000, 4, 512, 3),  # its ids tell of its output
        (1030, 5, 3, 1024, 1),
        (1030, 5, 3, 1, 1030),
        (1030, 506, 4, 1, 1536),
        (5, 1, 1, 512, 0),
        (1030, 5, 0, 512, 2),
    ],
)
def test_full_blocks_have_hashes(prompt, output, num_ids, size, num_hashes):
    request = asked("a", prompt=prompt, output=output, hash_ids=tuple(range(num_ids)))
    hashes = block_hashes(request, 512, size)
    assert len(hashes) == len(set(hashes)) == num_hashes


def test_where_neither_size_divides_the_other_it_is_said():
    with pytest.raises(
        ConfigurationError,
        match=r"block_size = 48 and the workload's blocks of 512 tokens do not fit.*a divisor of 512",
    ):
        block_hashes(asked("a"), 512, 48)
    assert len(block_hashes(asked("a", prompt=96), 0, 48)) == 2  # nothing is shared: any size will do


requests = st.builds(
    asked,
    st.sampled_from("abc"),
    prompt=st.integers(1, 40),
    output=st.just(1),
    hash_ids=st.lists(st.integers(0, 2), max_size=5).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(requests, requests, st.sampled_from([(8, 8), (8, 4), (8, 2), (4, 8), (8, 16)]))
def test_hashes_tell_what_tokens_tell(one, other, sizes):
    """Blocks have equal hashes exactly where all tokens up to their end are equal."""
    block_size, size = sizes
    one, other = (
        asked(each.request_id + "12"[n], prompt=each.num_prompt_tokens, output=1, hash_ids=cut)
        for n, each in enumerate((one, other))
        for cut in [each.hash_ids[: -(-each.num_prompt_tokens // block_size)]]
    )
    hashes = [block_hashes(each, block_size, size) for each in (one, other)]
    made = [tokens(each, block_size) for each in (one, other)]
    for n in range(min(each.num_prompt_tokens for each in (one, other)) // size):
        end = (n + 1) * size
        assert (hashes[0][n] == hashes[1][n]) == (made[0][:end] == made[1][:end])


def test_other_processes_make_the_same_whatever_their_hash_seed():
    code = """
from tests.lab.workloads.making import asked, synthetic
from enginecore_lab.workloads import workload_hash
from enginecore_lab.workloads.content import block_hashes, token_ids
request = asked("a", prompt=40, hash_ids=(7, 8))
print(token_ids(request, 16, 50_000).tolist(), [each.hex() for each in block_hashes(request, 16, 8)])
tenants = [{"name": "a"}, {"name": "b"}]
print(workload_hash(synthetic(sessions={}, prompt={"kind": "geometric", "mean": 30}, tenants=tenants)))
"""
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    assert len(next(iter(said)).splitlines()) == 2


def test_a_hash_of_a_workload_is_of_all_but_its_name():
    base = workload(asked("a"), asked("b", 1.0))
    assert workload_hash(base) == workload_hash(workload(asked("a", 0), asked("b", 1), name="other"))
    changed = [
        workload(asked("a"), asked("b", 1.5)),
        workload(asked("a", prompt=9), asked("b", 1.0)),
        workload(asked("a", hash_ids=(1,)), asked("b", 1.0), block_size=16),
        workload(asked("a", tenant="t"), asked("b", 1.0)),
        workload(asked("a"), asked("b", 1.0), loop="closed", concurrency=2),
        workload(asked("a")),
    ]
    assert len({workload_hash(each) for each in (base, *changed)}) == 7


# -- what an engine is sent --


def sent(request: Any, of: Any = None, *, engine: EngineInfo | None = None, **options: Any) -> tuple[Any, Any]:
    of = of or workload(request, asked("longest", output=50))
    return to_engine_request(
        request,
        of,
        engine or info(),
        **{"model_free": True, "reveal_lengths": False, "longest_output": longest_output(of), **options},
    )


def test_a_length_is_hidden_where_tokens_have_no_content():
    request, hashes = sent(asked("a", prompt=9, output=7, tenant="t", priority=3))
    assert request.prompt_token_ids == [0] * 9
    assert (request.params.max_tokens, request.params.min_tokens) == (50, 6)
    assert (request.params.stop_token_ids, request.params.ignore_eos) == ((0,), True)
    assert (request.tenant, request.priority, request.arrival_time, request.deadline) == ("t", 3, None, None)
    assert len(hashes) == 2


def test_a_length_is_told_if_it_is_to_be():
    request, _ = sent(asked("a", output=7), reveal_lengths=True)
    assert (request.params.max_tokens, request.params.min_tokens, request.params.stop_token_ids) == (7, 0, ())


def test_where_tokens_have_content_it_is_made_and_lengths_are_pinned():
    asked_for = asked("a", prompt=9, output=7, hash_ids=(1, 2))
    request, hashes = sent(asked_for, workload(asked_for, block_size=8), model_free=False)
    assert hashes is None
    assert request.prompt_token_ids == tokens(asked_for, 8)
    assert (request.params.max_tokens, request.params.ignore_eos, request.params.stop_token_ids) == (7, True, ())


def test_without_prefix_caching_nothing_is_hashed():
    asked_for = asked("a", prompt=400, hash_ids=(1,))
    engine = info(enable_prefix_caching=False, block_size=48)
    assert sent(asked_for, workload(asked_for, block_size=512), engine=engine)[1] == []


def test_longest_output():
    assert longest_output(workload(asked("a", output=3), asked("b", output=9))) == 9
    assert longest_output(synthetic(output={"kind": "constant", "tokens": 5})) == 5


def test_prefixes_of_sessions_go_on_where_they_were():
    turns = [each for each in synthetic(sessions={}, prompt={"kind": "constant", "tokens": 21}).requests]
    for before, after in itertools.pairwise(turns):
        if after.turn:
            known = block_hashes(before, 16, 16)
            # the last token of an answer is never computed
            assert len(known) >= (before.num_prompt_tokens + before.num_output_tokens - 1) // 16
            assert block_hashes(after, 16, 16)[: len(known)] == known
