"""Field case 127: what is registered in the front end's process is there in the engine core's, however it was named."""

import pytest

from tests.client import components
from tests.equivalence.engines import OracleEngine
from tests.scheduling.harnesses import make_request

PLUGIN = """
from enginecore.plugin import hookimpl
from tests.client.components import MANAGER, SCHEDULER


@hookimpl
def enginecore_components():
    return [MANAGER, SCHEDULER]
"""

WAYS = {
    "an entry point": [],
    "dotted names": ["tests.client.components:MANAGER", "tests.client.components:SCHEDULER"],
    "objects": [components.MANAGER, components.SCHEDULER],
}


@pytest.mark.parametrize("way", WAYS)
def test_components_of_ones_own_run_in_the_process_of_the_engine_core(way, site):
    if way == "an entry point":
        site.install("mine", PLUGIN)
    engine = OracleEngine(
        components=WAYS[way], max_num_seqs=1,
        **{"transport.use": "zmq", "scheduler.use": "last-come-first", "kv_cache_manager.use": "my-paged"},
    )  # fmt: skip
    try:
        assert (engine.info.components["scheduler"], engine.info.components["kv_cache_manager"]) == (
            "last-come-first", "my-paged",
        )  # fmt: skip
        engine.client.call_utility("pause")  # so that all are there before the first step
        engine.add(*(make_request(f"r{n}", 10, max_tokens=3) for n in range(3)))
        engine.client.call_utility("resume")
        engine.run()
        admitted = [new.request_id for trace in engine.history for new in trace.plan.new_requests]
        assert admitted == ["r2", "r1", "r0"]
    finally:
        engine.client.shutdown()
