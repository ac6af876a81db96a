"""Traces for schedulers, drawn by Hypothesis: moves of clients, operators and executors."""

import itertools
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from hypothesis import strategies as st

from enginecore_conformance.trace import Move, Trace

BLOCK_SIZE = 4
VOCABULARY = 32
MAX_MODEL_LEN = 48
SLOTS = 28
"""Moves of a trace at most. Each may be left out, so that a trace shrinks from any end."""

Draw = Callable[[st.SearchStrategy[Any]], Any]


def prompt(bricks: list[int], tail: int) -> list[int]:
    """Bricks of one block each, of which there are few, and some tokens more: prefixes are shared,
    and hit in full.
    """
    return [1 + (brick * BLOCK_SIZE + n) % (VOCABULARY - 1) for brick in bricks for n in range(BLOCK_SIZE)] + [
        VOCABULARY - 1
    ] * tail


def _field(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    return values.map(lambda value: (name, value))


FIELDS = st.lists(
    st.one_of(
        _field("priority", st.integers(-1, 1)),
        _field("tenant", st.sampled_from(("a", "b"))),
        _field("deadline", st.sampled_from((1.0, 8.0, 60.0))),
        _field("cache_salt", st.just("s")),
        _field("stop", st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=4)),
        _field("ignore_eos", st.just(False)),
        _field("min_tokens", st.integers(1, 3)),
        _field("client_index", st.just(1)),
        _field("skip_prefix_cache", st.just(True)),
    ),
    max_size=4,
).map(dict)
BRICKS = st.lists(st.integers(0, 1), min_size=1, max_size=5)


def _made(bricks: list[int], tail: int, times: int, max_tokens: int, fields: dict[str, Any]) -> Move:
    if "min_tokens" in fields:
        fields["min_tokens"] = min(fields["min_tokens"], max_tokens)
    return Move("add", (prompt(bricks * times, tail), max_tokens), fields)


ADD = st.builds(
    _made,
    BRICKS,
    st.integers(0, BLOCK_SIZE - 1),
    st.sampled_from((1,) * 12 + (2,)),  # once in a while one that small pools never hold
    st.integers(0, 16),
    FIELDS,
)


class Who(int):
    """Number of a request that is named, perhaps of one that never comes."""


NUMBERS = st.integers(0, 9).map(Who)
MOVES: Mapping[str, st.SearchStrategy[Move]] = {
    "add": ADD,
    "step": st.integers(1, 6).map(lambda times: Move("step", (times,) if times > 1 else ())),
    "submit": st.just(Move("submit")),
    "settle": st.just(Move("settle")),
    "wait": st.sampled_from((1.0, 20.0)).map(lambda seconds: Move("wait", (seconds,))),
    "abort": NUMBERS.map(lambda number: Move("abort", (number,))),
    "abort_many": st.lists(NUMBERS, min_size=2, max_size=3).map(lambda numbers: Move("abort", tuple(numbers))),
    "end": st.builds(
        lambda number, reason: Move("end", (number,), {"reason": reason} if reason != "abort" else {}),
        NUMBERS,
        st.sampled_from(("abort", "error")),
    ),
    "again": NUMBERS.map(lambda number: Move("add", (number, prompt([0], 1), 3))),
    "reset": st.just(Move("reset")),
    "reset_running": st.just(Move("reset", (), {"running": True})),
    "fault": st.builds(
        lambda kind, number: Move("fault", (kind, number)), st.sampled_from(("error", "drop", "unknown")), NUMBERS
    ),
}
QUIET = ("add",) * 6 + ("step",) * 5 + ("submit", "settle", "wait")
WILD = ("add",) * 7 + ("step",) * 4 + ("submit",) * 3 + ("settle",) * 3 + (
    "wait", "abort", "abort", "abort_many", "end", "again", "reset", "reset_running", "fault", "fault",
)  # fmt: skip


@st.composite
def conditions(draw: Draw, capabilities: frozenset[str]) -> dict[str, Any]:
    """Conditions that a scheduler of these capabilities must cope with. What is simplest is left
    out.
    """
    chunked = "chunked_prefill" in capabilities and draw(st.sampled_from((True, True, False)))
    depth = draw(st.sampled_from((1, 2, 4))) if "batch_queue" in capabilities else 1
    caching = "prefix_caching" in capabilities and draw(st.sampled_from((True, True, False)))
    chosen: dict[str, Any] = {
        "num_blocks": draw(st.sampled_from((9, 7, 12, 40) if chunked else (9, 7, 20, 40))),
        "max_num_seqs": draw(st.sampled_from((3, 2, 6, 1))),
        "max_num_batched_tokens": draw(st.sampled_from((16, 8, 24))) if chunked else MAX_MODEL_LEN,
        "max_model_len": MAX_MODEL_LEN,
    }
    if not chunked:
        chosen["enable_chunked_prefill"] = False
    if not caching:
        chosen["enable_prefix_caching"] = False
    if depth > 1:
        chosen["depth"] = depth
    if draw(st.booleans()):
        chosen["feeds_tokens"] = True
    if "out_of_order" in capabilities and not draw(st.sampled_from((True, True, False))):
        chosen["in_order"] = False
    if draw(st.booleans()):
        chosen["step_time"] = 1.0
    return chosen


def traces(capabilities: frozenset[str], kinds: tuple[str, ...]) -> st.SearchStrategy[Trace]:
    """Traces of these kinds of moves; a kind that is named more often comes more often."""
    slot = st.one_of(st.none(), *(MOVES[kind] for kind in kinds))
    slots = st.tuples(*[slot] * SLOTS)

    @st.composite
    def trace(draw: Draw) -> Trace:
        return Trace(draw(conditions(capabilities)), named(draw(slots), "add"))

    return trace()


def named(moves: tuple[Move | None, ...], arrival: str) -> tuple[Move, ...]:
    """The moves that are not left out; requests get their names in order of their arrival, a move
    of that name.
    """
    result = []
    num_added = 0
    for move in moves:
        if move is None:
            continue
        args = tuple(f"r{arg % (num_added + 1)}" if isinstance(arg, Who) else arg for arg in move.args)
        if move.method == arrival and not isinstance(args[0], str):
            args = (f"r{num_added}", *args)
            num_added += 1
        result.append(Move(move.method, args, move.kwargs))
    return tuple(result)


def grid(capabilities: frozenset[str], num_requests: int = 7) -> list[Trace]:
    """The same busy traffic in a tight pool, on every kind of executor that goes with these
    capabilities.
    """
    depths = (1, 2, 4) if "batch_queue" in capabilities else (1,)
    orders = (True, False) if "out_of_order" in capabilities else (True,)
    chunkings = (True, False) if "chunked_prefill" in capabilities else (False,)
    cachings = (True, False) if "prefix_caching" in capabilities else (False,)
    made = []
    for seed, (depth, feeds, in_order, chunked, caching) in enumerate(
        itertools.product(depths, (False, True), orders, chunkings, cachings)
    ):
        chosen = {
            "num_blocks": 10 + seed % 3,
            "max_num_seqs": 4,
            "max_num_batched_tokens": 16 if chunked else MAX_MODEL_LEN,
            "max_model_len": MAX_MODEL_LEN,
            "depth": depth,
            "feeds_tokens": feeds,
            "in_order": in_order,
            "enable_chunked_prefill": chunked,
            "enable_prefix_caching": caching,
            "step_time": 1.0,
        }
        made.append(Trace(chosen, busy_moves(seed, num_requests)))
    return made


def stages(capabilities: frozenset[str]) -> list[Trace]:
    """Traffic that chance rarely makes: faults beside neighbours, resets at any moment, prompts
    beyond the budget.
    """
    depth = 2 if "batch_queue" in capabilities else 1
    chosen: dict[str, Any] = {
        "num_blocks": 40, "max_num_seqs": 4, "max_num_batched_tokens": MAX_MODEL_LEN, "max_model_len": MAX_MODEL_LEN,
        "depth": depth, "feeds_tokens": True, "enable_chunked_prefill": "chunked_prefill" in capabilities,
        "enable_prefix_caching": "prefix_caching" in capabilities,
    }  # fmt: skip
    arrivals = [Move("add", (f"r{number}", prompt([number % 2, 1, 0, 1, 1], number), 9)) for number in range(4)]
    step = Move("step", (2,))
    faults = [Move("fault", (kind, f"r{number}")) for number, kind in enumerate(("error", "drop", "unknown"))]
    resets = [Move("reset"), step, Move("reset", (), {"running": True}), Move("step"), Move("submit")] * 3
    return [
        *(Trace(chosen, (*arrivals, Move("step", (steps,)), fault, step)) for fault in faults for steps in (1, 3)),
        *(Trace({**chosen, "depth": number}, (*arrivals, step, *resets)) for number in {1, depth}),
        Trace({**chosen, "enable_chunked_prefill": False}, (*arrivals, step)),
        Trace({**chosen, "num_blocks": 18}, (*arrivals, Move("step", (4,)), Move("abort", ("r1", "r9", "r1")), step)),
        Trace(chosen, (*arrivals, step, Move("end", ("r0", "r0"), {"reason": "error"}), Move("add", ("r0", [1], 3)))),
    ]


def busy_moves(seed: int, num_requests: int, *, cancels: float = 0.1) -> tuple[Move, ...]:
    """Requests that arrive faster than they end, with all that a policy may look at; some are
    cancelled.
    """
    random = Random(seed)
    moves = []
    for number in range(num_requests):
        tokens = prompt(random.choices((0, 1), k=random.randint(1, 4)), random.randrange(BLOCK_SIZE))
        fields: dict[str, Any] = {
            "priority": random.randrange(3),
            "tenant": random.choice("abc"),
            "deadline": random.choice((None, 5.0, 40.0)),
            "hints": {"predicted_output_tokens": random.randint(1, 20), "class": random.randrange(2)},
            "cache_salt": random.choice((None, None, None, "s")),
        }
        moves.append(Move("add", (f"r{number}", tokens, random.randint(1, 20)), fields))
        if random.random() < 0.7:
            moves.append(Move("step", (random.randint(1, 3),)))
        if random.random() < cancels:
            moves.append(Move("abort", (f"r{random.randrange(number + 1)}",)))
    return tuple(moves)
