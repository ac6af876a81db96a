"""Workloads as JSONL, the project's own format, which holds all that a workload can say.

Each line is a request: `id`, `arrival_s`, `prompt_tokens`, `output_tokens`, and where there is something to say
`hash_ids` with `block_size`, `session`, `turn`, `after` with `delay_s` in place of `arrival_s`, `tenant`, `priority`,
`slo_ttft`, `slo_tpot`. A first line `{"workload": name, ...}` may say `loop`, `concurrency`, `think_time_s` and
`block_size`.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import msgspec

from enginecore.errors import ConfigurationError
from enginecore.registry.spelling import closest
from enginecore_lab.workload import Loop, Workload, WorkloadRequest
from enginecore_lab.workloads.loaders.rows import TraceRow, checked_hash_ids, json_rows, least_tokens

_HEADER = ("workload", "loop", "concurrency", "think_time_s", "block_size")
_FIELDS = (
    "id", "arrival_s", "prompt_tokens", "output_tokens", "hash_ids", "block_size", "session", "turn", "after",
    "delay_s", "tenant", "priority", "slo_ttft", "slo_tpot",
)  # fmt: skip


def save_jsonl(workload: Workload, path: Path) -> None:
    """Write a workload so that `load_jsonl` gives the same one."""
    encoder = msgspec.json.Encoder()
    header: dict[str, Any] = {"workload": workload.name, "loop": workload.loop, "block_size": workload.block_size}
    if workload.loop == "closed":
        header.update(concurrency=workload.concurrency, think_time_s=workload.think_time)
    lines = [header, *(_written(each, workload.block_size) for each in workload.requests)]
    path.write_bytes(b"".join(encoder.encode(line) + b"\n" for line in lines))


def _written(request: WorkloadRequest, block_size: int) -> dict[str, Any]:
    when = {"after": request.after, "delay_s": request.delay} if request.after else {"arrival_s": request.arrival}
    fields: dict[str, Any] = {
        "id": request.request_id,
        **when,
        "prompt_tokens": request.num_prompt_tokens,
        "output_tokens": request.num_output_tokens,
        "hash_ids": request.hash_ids or None,
        "block_size": block_size if request.hash_ids else None,
        "session": request.session,
        "turn": request.turn or None,
        "tenant": request.tenant or None,
        "priority": request.priority or None,
        "slo_ttft": request.ttft_slo,
        "slo_tpot": request.tpot_slo,
    }
    return {name: value for name, value in fields.items() if value is not None}


def load_jsonl(path: Path, *, drop_empty: bool = False) -> Workload:
    """Read a workload. Requests are put in order of arrival, each with the turns that wait for it behind it.

    Args:
        path: The file.
        drop_empty: Leave out requests without prompt or output, and turns that wait for one, instead of refusing them.

    Raises:
        ConfigurationError: a line is wrong; says which, and what is wrong with it.
    """
    rows = json_rows(path)
    first = next(rows, None)
    if first is None:
        raise ConfigurationError(f"{path} holds no requests")
    header = first if "workload" in first.fields else TraceRow(path, first.line, {})
    _check_fields(header, _HEADER)
    reader = _RequestReader(header.integer("block_size", 0, default=0), least_tokens(drop_empty))
    requests = list(reader.read(rows if header is first else chain([first], rows)))
    if not requests:
        raise ConfigurationError(f"{path} holds no requests")
    loop = _loop(header, requests)
    closed = loop == "closed"
    return Workload(
        name=header.text("workload", default=path.stem),
        requests=requests,
        block_size=reader.block_size,
        loop=loop,
        concurrency=header.integer("concurrency", 1) if closed else 0,
        think_time=header.number("think_time_s", 0, default=0.0) if closed else 0.0,
    )


def _check_fields(row: TraceRow, known: tuple[str, ...]) -> None:
    for field in row.fields:
        if field not in known:
            hint = closest(field, known) or f"; these are known: {', '.join(known)}"
            raise ConfigurationError(f"{row.path}, line {row.line}: {field!r} is no field of it{hint}")


def _loop(header: TraceRow, requests: list[WorkloadRequest]) -> Loop:
    waits = any(each.after is not None for each in requests)
    loop = header.text("loop", default="partly open" if waits else "open")
    for known in get_args(Loop):
        if loop == known and waits == (known == "partly open"):
            right: Loop = known
            return right
    expected = "'partly open', since turns wait for others" if waits else "'open' or 'closed'"
    header.refuse("loop", loop, expected)


class _RequestReader:
    """Reads requests, in their final order.

    Attributes:
        block_size: Block size of all hash ids; 0: none was seen yet.
    """

    def __init__(self, block_size: int, least: int) -> None:
        self.block_size = block_size
        self._least = least

    def read(self, rows: Iterator[TraceRow]) -> Iterator[WorkloadRequest]:
        """Requests that come by themselves, by arrival, each before those that wait for it."""
        known: dict[str, TraceRow] = {}
        roots: list[WorkloadRequest] = []
        followers: dict[str, list[WorkloadRequest]] = {}
        for row in rows:
            request = self._request(row)
            if request.request_id in known:
                row.refuse("id", request.request_id, "different in every line")
            if request.after is not None and request.after not in known:
                row.refuse("after", request.after, "the id of a line before it")
            known[request.request_id] = row
            if request.after is None:
                roots.append(request)
            else:
                followers.setdefault(request.after, []).append(request)
        waiting = sorted(roots, key=lambda request: request.arrival)[::-1]
        while waiting:
            request = waiting.pop()
            if request.num_prompt_tokens and request.num_output_tokens:
                yield request
                waiting += reversed(followers.get(request.request_id, []))

    def _request(self, row: TraceRow) -> WorkloadRequest:
        _check_fields(row, _FIELDS)
        num_prompt = row.integer("prompt_tokens", self._least)
        num_output = row.integer("output_tokens", self._least)
        waits = row.has("after")
        return WorkloadRequest(
            request_id=row.text("id"),
            arrival=0.0 if waits else row.number("arrival_s", 0),
            num_prompt_tokens=num_prompt,
            num_output_tokens=num_output,
            hash_ids=self._hash_ids(row, num_prompt + num_output),
            session=row.text("session") if row.has("session") else None,
            turn=row.integer("turn", 0, default=0),
            after=row.text("after") if waits else None,
            delay=row.number("delay_s", 0, default=0.0) if waits else 0.0,
            tenant=row.text("tenant", default=""),
            priority=row.number("priority", default=0.0),
            ttft_slo=row.number("slo_ttft", 0) if row.has("slo_ttft") else None,
            tpot_slo=row.number("slo_tpot", 0) if row.has("slo_tpot") else None,
        )

    def _hash_ids(self, row: TraceRow, num_tokens: int) -> tuple[int, ...]:
        if not row.has("hash_ids"):
            return ()
        size = row.integer("block_size", 1, default=self.block_size or None)
        if self.block_size and size != self.block_size:
            row.refuse("block_size", size, f"{self.block_size} as in lines before it")
        self.block_size = size
        return checked_hash_ids(row, num_tokens, size)
