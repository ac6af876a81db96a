"""Traces for KV cache managers, drawn by Hypothesis."""

from typing import Any

from hypothesis import strategies as st

from enginecore_conformance.schedulers.traffic import Draw, Who, named
from enginecore_conformance.trace import Move, Trace

SLOTS = 26
"""Moves of a trace at most."""

NUMBERS = st.integers(0, 7).map(Who)


def _start(bricks: list[int], size: int, tail: int, written: int | None, fields: dict[str, Any]) -> Move:
    tokens = [1 + brick * size + n for brick in bricks for n in range(size)] + [90 + n for n in range(tail)]
    return Move("start", (tokens,) if written is None else (tokens, written), fields)


def _moves(block_size: int) -> st.SearchStrategy[Move]:
    bricks = st.lists(st.integers(0, 1), min_size=1, max_size=4)
    written = st.sampled_from((None, None, None, 1, block_size, 2 * block_size))
    fields = st.sampled_from(({}, {}, {}, {}, {"salt": "x"}, {"adapter": "x"}, {"skip": True}))
    start = st.builds(_start, bricks, st.just(block_size), st.integers(0, block_size), written, fields)
    return st.one_of(
        *[start] * 5,
        *[NUMBERS.map(lambda number: Move("free", (number,)))] * 4,
        *[NUMBERS.map(lambda number: Move("admit", (number,)))] * 2,
        st.builds(lambda number, count: Move("write", (number, count)), NUMBERS, st.integers(1, 2 * block_size)),
        *[st.builds(lambda number, tokens: Move("decode", (number, *tokens)), NUMBERS,
                    st.lists(st.integers(1, 2 * block_size), min_size=1, max_size=3))] * 2,
        NUMBERS.map(lambda number: Move("look", (number,))),
        st.lists(NUMBERS, min_size=1, max_size=3).map(lambda numbers: Move("freeable", tuple(numbers))),
        st.just(Move("reset")),
    )  # fmt: skip


def _of_size(block_size: int, caching: bool) -> st.SearchStrategy[Trace]:
    moves = _moves(block_size)
    slots = st.tuples(*[st.one_of(st.none(), *[moves] * 6)] * SLOTS)
    num_blocks = st.sampled_from((8, 5, 12))
    return st.builds(lambda blocks, chosen: _trace(blocks, block_size, caching, chosen), num_blocks, slots)


def _trace(num_blocks: int, block_size: int, caching: bool, moves: tuple[Move | None, ...]) -> Trace:
    conditions: dict[str, Any] = {"num_blocks": num_blocks, "block_size": block_size}
    if not caching:
        conditions["enable_prefix_caching"] = False
    return Trace(conditions, named(moves, "start"))


def traces(*, caching: bool) -> st.SearchStrategy[Trace]:
    """Random lives of requests, few of whose blocks differ."""
    sizes = st.one_of([_of_size(size, caching) for size in (2, 4, 1)])

    @st.composite
    def trace(draw: Draw) -> Trace:
        drawn: Trace = draw(sizes)
        return drawn

    return trace()
