"""Every attention backend against attention written out in float64, over odd shapes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from enginecore_torch.attention.interface import AttentionBatch, AttentionNeeds
from enginecore_torch.attention.native import NativeAttention
from enginecore_torch.attention.sdpa import TorchAttention

CPU = torch.device("cpu")
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2}


def make_backend(name, *, heads=6, kv_heads=2, head_dim=16, block_size=8, dtype=torch.float32):
    needs = AttentionNeeds(
        num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, block_size=block_size, dtype=dtype, device=CPU
    )
    return {"native": NativeAttention, "torch": TorchAttention}[name](needs), needs


class Requests:
    """Some requests' keys and values so far, kept densely beside the paged cache of the backend."""

    def __init__(self, name, *, num_blocks, **shape):
        torch.manual_seed(0)
        self.backend, self.shape = make_backend(name, **shape)
        self.cache = self.backend.new_kv_cache(num_blocks)
        self.free = np.random.default_rng(0).permutation(num_blocks).tolist()
        self.keys, self.values, self.tables = {}, {}, {}

    def run(self, counts):
        """Give each request so many more tokens in one step; returns (output, expected)."""
        shape, total = self.shape, sum(counts.values())
        qkv = torch.randn(total, shape.num_heads + 2 * shape.num_kv_heads, shape.head_dim).to(shape.dtype)
        query, key, value = qkv.split([shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1)
        start, lengths, expected = 0, [], []
        for name, count in counts.items():
            rows = slice(start, start + count)
            self.keys[name] = torch.cat([self.keys[name], key[rows]] if name in self.keys else [key[rows]])
            self.values[name] = torch.cat([self.values[name], value[rows]] if name in self.values else [value[rows]])
            lengths.append(len(self.keys[name]))
            table = self.tables.setdefault(name, [])
            while len(table) * shape.block_size < lengths[-1]:
                table.append(self.free.pop())
            expected.append(self._expected(query[rows], name))
            start += count
        output = self.backend.forward(query, key, value, self.cache, self.backend.prepare(self._batch(counts, lengths)))
        return output.float(), torch.cat(expected)

    def _batch(self, counts, lengths):
        width = max(len(self.tables[name]) for name in counts)
        tables = np.full((len(counts), width), 10**9, np.int32)  # past a request's end anything may stand
        for row, name in enumerate(counts):
            tables[row, : len(self.tables[name])] = self.tables[name]
        starts = np.cumsum([0, *counts.values()]).astype(np.int32)
        return AttentionBatch(starts, np.array(lengths, np.int32), tables)

    def _expected(self, query, name):
        group = self.shape.num_heads // self.shape.num_kv_heads
        keys = self.keys[name].double().repeat_interleave(group, 1).transpose(0, 1)
        values = self.values[name].double().repeat_interleave(group, 1).transpose(0, 1)
        scores = query.double().transpose(0, 1) @ keys.transpose(1, 2) / self.shape.head_dim**0.5
        tokens, length = scores.shape[1:]
        later = torch.arange(length) > torch.arange(length - tokens, length)[:, None]
        weights = scores.masked_fill(later, -torch.inf).softmax(-1)
        return (weights @ values).transpose(0, 1).flatten(1).float()

    def check(self, counts):
        output, expected = self.run(counts)
        tolerance = TOLERANCE[self.shape.dtype]
        torch.testing.assert_close(output, expected, atol=tolerance, rtol=tolerance)

    def pages(self):
        """Bytes of the cache, by block."""
        parts = [part.view(torch.uint8).numpy() for part in self.cache]
        blocks = sum(part.nbytes for part in parts) // self.backend.page_size_bytes
        return np.concatenate([part.reshape(blocks, -1) for part in parts], axis=1).copy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("block_size", [1, 8, 16, 32, 48])
@pytest.mark.parametrize("name", ["torch", "native"])
def test_lengths_around_the_borders_of_blocks(name, block_size, dtype):
    requests = Requests(name, num_blocks=400, block_size=block_size, dtype=dtype)
    for length in {1, 2, 15, 16, 17, 31, 33, block_size, block_size + 1, 2 * block_size}:
        requests.check({f"r{length}": length})
        requests.check({f"r{length}": 1})
        requests.check({f"r{length}": 3})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["torch", "native"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"),
    [(1, 1, 2), (4, 4, 8), (9, 3, 64), (5, 1, 18), (8, 1, 128), (14, 2, 80), (70, 1, 32), (3, 3, 6)],
)
def test_shapes_of_heads(name, heads, kv_heads, head_dim, dtype):
    shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    requests = Requests(name, num_blocks=80, dtype=dtype, **shape)
    requests.check({"a": 70, "b": 1})
    requests.check({"b": 30, "a": 1})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["torch", "native"])
def test_long_contexts_span_many_chunks(name, dtype):
    requests = Requests(name, num_blocks=200, block_size=16, dtype=dtype)
    requests.check({"a": 700})
    requests.check({"b": 257, "a": 130})
    requests.check({"a": 1, "b": 1})


@pytest.mark.parametrize("name", ["torch", "native"])
@settings(max_examples=20, deadline=None)
@given(
    data=st.data(),
    block_size=st.sampled_from([1, 3, 8, 16, 32]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_random_mixed_batches(name, data, block_size, dtype):
    requests = Requests(name, num_blocks=700, block_size=block_size, dtype=dtype)
    for _ in range(data.draw(st.integers(1, 4), label="steps")):
        names = data.draw(st.lists(st.sampled_from("abcde"), min_size=1, unique=True), label="batch")
        requests.check({request: data.draw(st.integers(1, 30), label=request) for request in names})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["torch", "native"])
def test_only_blocks_of_the_step_are_written(name, dtype):
    requests = Requests(name, num_blocks=30, dtype=dtype)
    requests.run({"a": 20, "b": 9})
    before = requests.pages()
    requests.run({"a": 2})  # positions 20 and 21 lie in its third block
    changed = np.flatnonzero((before != requests.pages()).any(axis=1)).tolist()
    assert changed == [requests.tables["a"][2]]
    requests.check({"b": 1, "a": 1})  # and what was in that block before is still there


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["torch", "native"])
def test_what_an_earlier_owner_left_in_a_block_does_no_harm(name, dtype):
    requests = Requests(name, num_blocks=30, dtype=dtype)
    for part in requests.cache:
        part.fill_(torch.nan)
    for length in (1, 3, 8, 9, 20):
        requests.check({f"r{length}": length})
        requests.check({f"r{length}": 1})
    requests.check({"r1": 1, "r3": 1, "r20": 5})


def test_threads_share_the_work_of_one_step():
    torch.set_num_threads(2)
    requests = Requests("native", num_blocks=300, head_dim=64)
    requests.check({"a": 300, "b": 1, "c": 200})
    requests.check({"a": 1, "b": 70, "c": 1})


@pytest.mark.parametrize("name", ["torch", "native"])
def test_a_query_that_is_not_a_number_spoils_its_own_request_only(name):
    backend, _ = make_backend(name)
    cache = backend.new_kv_cache(4)
    qkv = torch.randn(5, 10, 16)
    qkv[0, :6] = torch.nan
    query, key, value = qkv.split([6, 2, 2], dim=1)
    batch = AttentionBatch(np.array([0, 2, 5], np.int32), np.array([2, 3], np.int32), np.array([[2], [0]], np.int32))
    output = backend.forward(query, key, value, cache, backend.prepare(batch))
    assert output[1:].isfinite().all()
    if name == "native":  # torch's own kernel answers 0; the residual stream still carries the NaN on
        assert output[0].isnan().all()


def test_page_sizes_count_what_is_allocated():
    for name in ("torch", "native"):
        for block_size in (1, 8, 16, 32):
            backend, _ = make_backend(name, block_size=block_size, head_dim=24, dtype=torch.bfloat16)
            assert sum(part.nbytes for part in backend.new_kv_cache(7)) == 7 * backend.page_size_bytes
    assert make_backend("torch", block_size=16, head_dim=64)[0].page_size_bytes == 2 * 16 * 2 * 64 * 4
    assert make_backend("native", block_size=16, head_dim=64)[0].page_size_bytes == 2 * 16 * 2 * 64 * 4


@pytest.mark.parametrize("name", ["torch", "native"])
def test_query_and_keys_may_come_from_different_tensors(name):
    """An architecture without a fused product lays tokens out with strides of their own."""
    together, apart = Requests(name, num_blocks=4), Requests(name, num_blocks=4)
    forward = apart.backend.forward

    def separately(query, key, value, kv_cache, metadata):
        return forward(query.contiguous(), key.contiguous(), value.contiguous(), kv_cache, metadata)

    apart.backend.forward = separately
    for counts in ({"a": 11, "b": 3}, {"a": 1, "b": 9}):
        torch.manual_seed(7)
        expected = together.run(counts)[0]
        torch.manual_seed(7)
        assert torch.equal(apart.run(counts)[0], expected)


def test_a_layout_that_the_kernel_cannot_walk_is_refused():
    backend, _ = make_backend("native")
    query, key, value = (torch.zeros(2, heads, 16) for heads in (6, 2, 2))
    strided = value.transpose(1, 2).contiguous().transpose(1, 2)
    batch = AttentionBatch(np.array([0, 2], np.int32), np.array([2], np.int32), np.zeros((1, 1), np.int32))
    with pytest.raises(ValueError, match="heads must be dense"):
        backend.forward(query, key, strided, backend.new_kv_cache(1), backend.prepare(batch))
