"""The grid of `test_grid`, through both halves of `zmq`: one engine core, a synchronous and an asyncio front end."""

import asyncio

from enginecore.client import attach_async_client
from tests.equivalence.engines import OracleEngine
from tests.equivalence.test_grid import grid, grid_settings, make_requests


@grid(quick=("chunk16",))
def test_same_tokens_through_zmq(chunk, block_size, caching, pool, depth, feeds_tokens):
    engine = OracleEngine(
        oracle={"depth": depth, "feeds_tokens": feeds_tokens},
        **grid_settings(chunk, block_size, caching, pool),
        **{"transport.use": "zmq"},
    )
    try:
        engine.client.call_utility("pause")  # so that all are there before the first step, as in one process
        engine.add(*make_requests(block_size))
        engine.client.call_utility("resume")
        engine.run()
        assert engine.max_in_flight == depth
        assert (engine.num_chunks > 0) == (chunk != "whole")
        assert (engine.num_cached_tokens > 0) == caching
        assert (engine.stats.num_preemptions > 0) == (pool == "tight")
        client = attach_async_client(engine.loaded, engine.client.address)
        assert client.client_index == 1
        tokens = asyncio.run(engine.run_async(client, make_requests(block_size, prefix="async-")))
        assert list(tokens.values()) == list(engine.tokens.values())
        client.shutdown()
    finally:
        engine.client.shutdown()
