"""What is known of published traces, counted by others."""

from statistics import mean
from typing import Any

import pytest

from enginecore.interfaces import KVCacheConfig
from enginecore.messages import EngineCoreRequest
from enginecore.request import Request
from enginecore.sampling import SamplingParams
from enginecore_kv_cache.paged import PagedKVCacheManager
from enginecore_lab.workloads import read_workload
from enginecore_lab.workloads.content import block_hashes
from enginecore_lab.workloads.transform import mean_rate
from tests.lab.workloads.making import asked
from tests.shared_data import shared

SIZE = 512
ZEROS = [0] * 130_000
PARAMS = SamplingParams(max_tokens=1)


def load(kind: str, path: str) -> Any:
    return read_workload({"kind": kind, "path": str(shared(path))}).make(0, 0)


def test_azure_conversations_of_2023():
    made = load("azure", "traces/azure_2023_conv.csv")
    assert len(made.requests) == 19_366
    assert mean(each.num_prompt_tokens for each in made.requests) == pytest.approx(1155, abs=0.5)
    assert mean(each.num_output_tokens for each in made.requests) == pytest.approx(211, abs=0.5)
    assert max(each.num_output_tokens for each in made.requests) == 1000
    assert made.requests[-1].arrival == pytest.approx(3502, abs=0.5)
    assert mean_rate(made) == pytest.approx(5.53, abs=0.005)


@pytest.fixture(scope="module")
def mooncake():
    return load("mooncake", "traces/mooncake_conversation.jsonl")


def test_mooncake_conversations(mooncake):
    assert len(mooncake.requests) == 12_031
    assert sum(len(each.hash_ids) for each in mooncake.requests) == 288_500
    assert len({hash_id for each in mooncake.requests for hash_id in each.hash_ids}) == 182_790
    assert sum(each.num_prompt_tokens for each in mooncake.requests) == 144_793_823
    assert sum(each.num_output_tokens for each in mooncake.requests) == 4_122_048


@pytest.fixture(scope="module")
def whole_blocks(mooncake):
    """The hashes of each request's ids, which all count as whole blocks, as in the published figures."""
    return [
        block_hashes(asked(each.request_id, prompt=len(each.hash_ids) * SIZE, hash_ids=each.hash_ids), SIZE, SIZE)
        for each in mooncake.requests
    ]


@pytest.mark.parametrize(
    ("capacity", "share"),
    [
        pytest.param(182_790, 0.366, id="unlimited", marks=pytest.mark.full),
        pytest.param(50_000, 0.355, marks=pytest.mark.full),
        (10_000, 0.211),
        (1_000, 0.044),
    ],
)
def test_mooncake_blocks_that_the_kv_cache_manager_finds(whole_blocks, capacity, share):
    manager = PagedKVCacheManager(KVCacheConfig(capacity, SIZE, (("layers",),)))
    found = 0
    for number, hashes in enumerate(whole_blocks):
        num_tokens = len(hashes) * SIZE
        # one token more: the last one is always computed
        wire = EngineCoreRequest(request_id=str(number), prompt_token_ids=ZEROS[: num_tokens + 1], params=PARAMS)
        request = Request(
            wire, PARAMS, arrival_number=number, arrival_time=0.0, max_model_len=1 << 20, block_hashes=hashes
        )
        prefix = manager.get_computed_blocks(request)
        found += prefix.num_tokens // SIZE
        assert manager.allocate_slots(request, num_tokens, prefix) is not None
        manager.cache_blocks(request, num_tokens)
        manager.free(request)
    assert found / 288_500 == pytest.approx(share, abs=0.005)
