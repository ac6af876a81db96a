"""Mooncake traces.

https://github.com/kvcache-ai/Mooncake, `FAST25-release/traces` (Qin et al., Mooncake, FAST 2025):
`conversation_trace.jsonl`, `toolagent_trace.jsonl`, `synthetic_trace.jsonl`. Apache-2.0. Times, lengths and what blocks
of 512 tokens of the prompts hold; no sessions or tenants.
"""

from collections.abc import Iterator
from pathlib import Path

from enginecore_lab.workload import Workload, WorkloadRequest
from enginecore_lab.workloads.loaders.rows import checked_hash_ids, json_rows, least_tokens, trace

BLOCK_SIZE = 512


def load_mooncake(path: Path, *, drop_empty: bool = False) -> Workload:
    """A trace as published: timestamp (milliseconds), input_length, output_length, hash_ids.

    Args:
        path: The file.
        drop_empty: Leave out rows without prompt or output instead of refusing them.

    Raises:
        ConfigurationError: a line is not as published; says which, and what is wrong with it.
    """
    return trace(path, _requests(path, least_tokens(drop_empty)), BLOCK_SIZE)


def _requests(path: Path, least: int) -> Iterator[WorkloadRequest]:
    for number, row in enumerate(json_rows(path)):
        num_prompt_tokens = row.integer("input_length", least)
        yield WorkloadRequest(
            request_id=str(number),
            arrival=row.number("timestamp", 0) / 1000,
            num_prompt_tokens=num_prompt_tokens,
            num_output_tokens=row.integer("output_length", least),
            hash_ids=checked_hash_ids(row, num_prompt_tokens, BLOCK_SIZE),
        )
