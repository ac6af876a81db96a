"""Traces of rare events at the moment at which they matter."""

from collections.abc import Iterable
from typing import Any

from enginecore_conformance.schedulers.traffic import MAX_MODEL_LEN, VOCABULARY, prompt
from enginecore_conformance.trace import Move, Trace

SUBMIT, SETTLE, STEP = Move("submit"), Move("settle"), Move("step")
LONG = prompt([0, 1, 0, 0, 1, 1, 0], 0)
"""Seven blocks."""


def incidents(capabilities: frozenset[str]) -> list[Trace]:
    """Incidents for schedulers of these capabilities."""
    made = [_odd_requests(chunked="chunked_prefill" in capabilities)]
    if "chunked_prefill" not in capabilities:
        return made
    made += [_more_decodes_than_budget(), _rejected_mid_prompt()]
    if "prefix_caching" in capabilities:
        made += _displaced_mid_prompt()
    if "batch_queue" in capabilities:
        made += [_piece_of_the_past(depth) for depth in (2, 3)]
    return made


def _odd_requests(*, chunked: bool) -> Trace:
    """No output, one that stops at once, one that may not; an id that is taken; one that waits when
    it is ended.
    """
    everything = list(range(1, VOCABULARY))
    arrivals = (
        Move("add", ("r0", prompt([0], 1), 0)),
        Move("add", ("r1", prompt([1], 1), 6), {"stop": everything, "client_index": 1}),
        Move("add", ("r2", prompt([0, 1], 0), 6), {"stop": everything, "min_tokens": 3}),
        Move("add", ("r1", prompt([0], 2), 3)),
        Move("add", ("r3", prompt([0, 1], 3), 6), {"client_index": 1}),
    )
    moves = (*arrivals, SUBMIT, Move("end", ("r3", "r2"), {"reason": "error"}), STEP)
    limit = {} if chunked else {"enable_chunked_prefill": False, "max_num_batched_tokens": MAX_MODEL_LEN}
    return _trace(moves, max_num_seqs=3, **limit)


def _more_decodes_than_budget() -> Trace:
    """Six requests are past their prompts, and a step has four tokens."""
    arrivals = (Move("add", (f"r{number}", prompt([number % 2], number % 3), 6)) for number in range(6))
    return _trace(arrivals, max_num_seqs=6, max_num_batched_tokens=4)


def _rejected_mid_prompt() -> Trace:
    """The executor names a request in errors whose token is not due yet; others run beside it."""
    arrivals = (Move("add", (f"r{number}", LONG if number == 1 else prompt([0], number), 6)) for number in range(3))
    return _trace((*arrivals, STEP, Move("fault", ("reject", "r1")), STEP), max_num_batched_tokens=12)


def _displaced_mid_prompt() -> Iterable[Trace]:
    """A long prompt, some blocks of which are published, gives way to a request that decodes,
    before its first token.

    When it returns it finds them in the cache.
    """
    for length in range(8, 14):
        arrivals = Move("add", ("r0", prompt([1], 1), length)), STEP, STEP, Move("add", ("r1", LONG, 3))
        yield _trace(arrivals, num_blocks=10, max_num_batched_tokens=4)


def _piece_of_the_past(depth: int) -> Trace:
    """A piece of a prompt is in flight while its request loses its blocks, gets others, and begins
    anew.
    """
    rest = [SUBMIT] * (depth - 1) + [SETTLE] * depth
    moves = (Move("add", ("r0", LONG, 4)), SUBMIT, Move("reset", (), {"running": True}), *rest)
    return _trace(moves, max_num_batched_tokens=8, depth=depth, step_time=1.0)


def _trace(moves: Iterable[Move], **changes: Any) -> Trace:
    conditions = {"num_blocks": 40, "max_num_seqs": 4, "max_model_len": MAX_MODEL_LEN}
    return Trace({**conditions, **changes}, tuple(moves))
