"""Kernel time per step and running request: schedule() and update_from_output() in steady decode, no model.

    python benchmarks/scheduler_overhead.py [RUNNING ...]

The oracle executor runs the steps and is not timed. Medians over 140 steps after 20; prompts of 256 tokens, blocks
of 16.
"""

import statistics
import sys
import time

from enginecore.clock import RealClock
from enginecore.core import EngineCore, build_engine_core
from enginecore.messages import EngineCoreRequest
from enginecore.sampling import SamplingParams
from enginecore.settings import load_settings

BLOCK, PROMPT, WARM_UP, STEPS = 16, 256, 20, 140
CLOCK = RealClock()
ORACLE = {"verify": False, "max_model_len": 1024, "vocab_size": 50_000, "kv_memory": 1 << 30}


def start(running: int) -> EngineCore:
    """An engine core whose requests are all past their prompts."""
    loaded = load_settings(
        {
            "executor": {"use": "oracle", "oracle": ORACLE},
            "block_size": BLOCK,
            "num_kv_blocks": running * (PROMPT + 256) // BLOCK + 100,
            "max_num_seqs": running,
            "max_num_batched_tokens": 8192,
        }
    )
    core = build_engine_core(loaded, CLOCK)
    params = SamplingParams(temperature=0, seed=0, max_tokens=PROMPT, ignore_eos=True)
    for n in range(running):
        prompt = [(n * 7919 + position) % 40_000 + 5 for position in range(PROMPT)]
        core.add_request(EngineCoreRequest(request_id=f"r{n}", prompt_token_ids=prompt, params=params))
    while any(request.num_computed_tokens < PROMPT for request in core.scheduler.unfinished_requests):
        step(core)
    return core


def step(core: EngineCore) -> tuple[float, float]:
    """One step; seconds of schedule() and of update_from_output()."""
    began = time.perf_counter()
    scheduled = core.scheduler.schedule()
    planned = time.perf_counter()
    running = core.executor.execute_model(scheduled)
    CLOCK.wait(running)
    output = running.result()
    if output is None:
        raise SystemExit("the oracle was told to sample at once")
    ran = time.perf_counter()
    core.scheduler.update_from_output(scheduled, output)
    return planned - began, time.perf_counter() - ran


def main() -> None:
    """Print one line per number of running requests."""
    for running in map(int, sys.argv[1:] or ["1", "64", "256", "1024"]):
        core = start(running)
        times = [step(core) for _ in range(WARM_UP + STEPS)][WARM_UP:]
        schedule, update = (statistics.median(column) * 1e6 for column in zip(*times, strict=True))
        each = (schedule + update) / running
        print(f"running={running} schedule={schedule:.0f}us update={update:.0f}us per_request={each:.2f}us", flush=True)


if __name__ == "__main__":
    main()
