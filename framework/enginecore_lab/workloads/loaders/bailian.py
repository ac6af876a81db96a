"""Traces of Alibaba Cloud's Bailian.

https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon (Wang et al., KVCache Cache in the Wild, ATC 2025):
`qwen_traceA_blksz_16.jsonl`, `qwen_traceB_blksz_16.jsonl` and others. Apache-2.0. Times, lengths, conversations and the
prompts' blocks of 16 tokens; no tenants.
"""

from collections.abc import Iterator
from pathlib import Path

from enginecore_lab.workload import Workload, WorkloadRequest
from enginecore_lab.workloads.loaders.rows import TraceRow, checked_hash_ids, json_rows, least_tokens, trace

BLOCK_SIZE = 16


def load_bailian(path: Path, *, drop_empty: bool = False) -> Workload:
    """A trace as published: chat_id, parent_chat_id, timestamp (seconds), input_length, output_length, turn, hash_ids.

    Every turn comes when it came, so that the loop is open; sessions and turns are named all the same. How long people
    thought is not in the trace: it says when turns came, not when answers ended.

    Args:
        path: The file.
        drop_empty: Leave out rows without prompt or output instead of refusing them.

    Raises:
        ConfigurationError: a line is not as published; says which, and what is wrong with it.
    """
    return trace(path, _requests(path, least_tokens(drop_empty)), BLOCK_SIZE)


def _requests(path: Path, least: int) -> Iterator[WorkloadRequest]:
    session_of: dict[int, int] = {}
    for row in json_rows(path):
        chat, num_prompt_tokens = _chat(row, session_of), row.integer("input_length", least)
        yield WorkloadRequest(
            request_id=str(chat),
            arrival=row.number("timestamp", 0),
            num_prompt_tokens=num_prompt_tokens,
            num_output_tokens=row.integer("output_length", least),
            hash_ids=checked_hash_ids(row, num_prompt_tokens, BLOCK_SIZE),
            session=str(session_of[chat]),
            turn=row.integer("turn", 1, default=1) - 1,
        )


def _chat(row: TraceRow, session_of: dict[int, int]) -> int:
    """Id of the chat. A conversation is named by the first of its turns; one whose parent is not in
    the file begins anew.
    """
    chat, parent = row.integer("chat_id", 0), row.integer("parent_chat_id", -1, default=-1)
    if chat in session_of:
        row.refuse("chat_id", chat, "different in every line")
    session_of[chat] = session_of.get(parent, chat)
    return chat
