"""Attention in C, which reads the paged KV cache in place, for decodes and prompts alike."""

import ctypes
import math
from dataclasses import dataclass

import numpy as np
import torch

from enginecore_torch.attention.interface import AttentionBackend, AttentionBatch, AttentionNeeds
from enginecore_torch.native.build import STORAGE_FLAGS, declare, load_kernels

PARALLEL_FROM = 1 << 17
"""Products of a query and a key element, per layer; below, waking threads costs more than it saves.
"""

KVCache = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of one layer, flat, in the layout that kernels.c describes."""


class _Shape(ctypes.Structure):
    _fields_ = (
        ("kv_heads", ctypes.c_long), ("group", ctypes.c_long), ("head_dim", ctypes.c_long),
        ("block_size", ctypes.c_long), ("scale", ctypes.c_float),
    )  # fmt: skip


class _StepStruct(ctypes.Structure):
    _fields_ = (
        ("query_starts", ctypes.c_void_p), ("seq_lens", ctypes.c_void_p), ("tables", ctypes.c_void_p),
        ("tile_request", ctypes.c_void_p), ("tile_start", ctypes.c_void_p), ("table_width", ctypes.c_long),
        ("tiles", ctypes.c_long), ("parallel", ctypes.c_long),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class NativeStep:
    """The kernel's view of a step, and the arrays that it points into."""

    struct: _StepStruct
    arrays: tuple[np.ndarray, ...]


class NativeAttention(AttentionBackend):
    """The C kernel, on the CPU in float32 and bfloat16.

    Blocks are padded to 16 tokens in memory, heads to 16 dimensions.
    """

    name = "native"

    def __init__(self, needs: AttentionNeeds) -> None:
        super().__init__(needs)
        kernels = load_kernels(needs.dtype, needs.device)
        self._struct = _Shape(
            needs.num_kv_heads, needs.group_size, needs.head_dim, needs.block_size, 1 / math.sqrt(needs.head_dim)
        )
        self._struct_pointer = ctypes.addressof(self._struct)

        def ask(name: str) -> int:
            return int(declare(kernels, name, ctypes.c_void_p, result=ctypes.c_long)(self._struct_pointer))

        self._tile_tokens = ask("tile_tokens")
        self._key_size = needs.num_kv_heads * ask("key_block_size")
        self._value_size = needs.num_kv_heads * ask("value_block_size")
        self._attention = declare(
            kernels, "attention", *[ctypes.c_void_p] * 5, *[ctypes.c_long] * 2, *[ctypes.c_void_p] * 3
        )

    @classmethod
    def objections(cls, needs: AttentionNeeds) -> list[str]:
        found = []
        if needs.device.type != "cpu":
            found.append(f"it needs the CPU, and the device is {needs.device}")
        if needs.dtype not in STORAGE_FLAGS:
            found.append(f"it needs float32 or bfloat16, and the dtype is {str(needs.dtype).removeprefix('torch.')}")
        return found

    @property
    def page_size_bytes(self) -> int:
        return (self._key_size + self._value_size) * self.needs.dtype.itemsize

    def new_kv_cache(self, num_blocks: int) -> KVCache:
        return self._zeros(num_blocks * self._key_size), self._zeros(num_blocks * self._value_size)

    def _zeros(self, size: int) -> torch.Tensor:
        """From calloc, which touches no page: torch.zeros would write all of them now."""
        return torch.from_numpy(np.zeros(size * self.needs.dtype.itemsize, np.uint8)).view(self.needs.dtype)

    def prepare(self, batch: AttentionBatch) -> NativeStep:
        counts = np.diff(batch.query_starts)
        tiles = -(-counts // self._tile_tokens)
        requests = np.repeat(np.arange(len(counts), dtype=np.int32), tiles)
        before = np.cumsum(tiles) - tiles
        starts = ((np.arange(len(requests)) - np.repeat(before, tiles)) * self._tile_tokens).astype(np.int32)
        work = int((counts * batch.seq_lens).sum()) * self.needs.num_heads * self.needs.head_dim
        arrays = (batch.query_starts, batch.seq_lens, np.ascontiguousarray(batch.block_tables), requests, starts)
        struct = _StepStruct(
            *(array.ctypes.data for array in arrays),
            batch.block_tables.shape[1],
            len(requests),
            work > PARALLEL_FROM,
        )
        return NativeStep(struct, arrays)

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kv_cache: KVCache, metadata: NativeStep
    ) -> torch.Tensor:
        tokens, heads, head_dim = query.shape
        if key.stride() != value.stride() or query.stride()[1:] != (head_dim, 1) or key.stride()[1:] != (head_dim, 1):
            raise ValueError(
                f"heads must be dense, and keys laid out as values: strides {query.stride()}, {key.stride()}, "
                f"{value.stride()}"
            )
        out = query.new_empty((tokens, heads * head_dim))
        keys, values = kv_cache
        self._attention(
            self._struct_pointer,
            ctypes.addressof(metadata.struct),
            query.data_ptr(),
            key.data_ptr(),
            value.data_ptr(),
            query.stride(0),
            key.stride(0),
            keys.data_ptr(),
            values.data_ptr(),
            out.data_ptr(),
        )
        return out
