"""What scheduling costs: `python benchmarks/scheduler_overhead.py [POLICY ...] [--rounds N] [--beside COMMAND]`.

All policies by default, on the oracle executor, which runs the steps and is not timed; outputs are built as they go to
the wire. Prompts of 256 tokens, blocks of 16. Policies take turns, round by round, so that all see the same machine.
Figures are CPU time of this thread, the lower quartile of many; a ratio is to `fcfs` of the same round, the median.

- steady: schedule() and update_from_output() per running request and step, everybody decoding.
- waiting: what 10,000 requests that wait add to a step, while nobody comes or goes and while one does in every step.
- preempt: what it costs in schedule() to displace a running request, beyond admitting the one that displaces it.
- add: what a request of 1,000 tokens costs until it waits with its prefix looked up, hashes made.
- beside: whatever COMMAND prints, run between the rounds of `steady`: another engine's scheduler, to be compared.
"""

import argparse
import gc
import shlex
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

from enginecore.assembly import build_engine_core
from enginecore.clock import RealClock
from enginecore.core import EngineCore
from enginecore.messages import EngineCoreRequest
from enginecore.sampling import SamplingParams
from enginecore.settings import load_settings
from enginecore_schedulers import enginecore_components

BLOCK, PROMPT, WAITING = 16, 256, 10_000
CLOCK = RealClock()
ORACLE = {"verify": False, "max_model_len": 8192, "vocab_size": 50_000, "kv_memory": 1 << 40}
POLICIES = [component.name for component in enginecore_components() if component.kind == "scheduler"]


# so that nobody who waits displaces anybody: what that costs is measured apart
PATIENT = {
    "mlfq": {"quantum": 1 << 20},
    "gittins": {"displacements": 0},
    "srpt": {"margin": 1e9},
    "edf": {"slack": 0.0},
}


class Bench:
    """An engine core under one policy, whose requests are all past their prompts."""

    def __init__(
        self, policy: str, running: int, *, seats: int = 0, steps: int = 4_000, settings: dict[str, Any] | None = None
    ) -> None:
        self.running = running
        self._serial = 0
        self.core = start(policy, settings or {}, seats or running, running * (PROMPT + steps) // BLOCK + 2_000)
        self.add(running, max_tokens=steps)
        while any(r.num_computed_tokens < PROMPT for r in self.core.scheduler.unfinished_requests):
            self.step()

    def add(self, count: int, *, length: int = PROMPT, max_tokens: int = 1_000, priority: float = 5) -> float:
        """Add requests that share nothing, of three tenants; seconds that it took."""
        requests = [self._request(length, max_tokens, priority) for _ in range(count)]
        began = time.thread_time()
        for request in requests:
            self.core.add_request(request)
        return time.thread_time() - began

    def _request(self, length: int, max_tokens: int, priority: float) -> EngineCoreRequest:
        n = self._serial = self._serial + 1
        prompt = [(n * 7919 + position) % 40_000 + 5 for position in range(length)]
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        return EngineCoreRequest(
            request_id=f"r{n}", prompt_token_ids=prompt, params=params, priority=priority, tenant=f"tenant{n % 3}"
        )

    def step(self) -> tuple[float, float]:
        """One step; seconds of schedule() and of update_from_output()."""
        core = self.core
        began = time.thread_time()
        scheduled = core.scheduler.schedule()
        planned = time.thread_time()
        running = core.executor.execute_model(scheduled)
        CLOCK.wait(running)
        output = running.result()
        if output is None:
            raise SystemExit("the oracle was told to sample at once")
        ran = time.thread_time()
        core.scheduler.update_from_output(scheduled, output)
        return planned - began, time.thread_time() - ran

    def steps(self) -> float:
        """Seconds of a step, on average over as many as fill a block of every request."""
        return sum(sum(self.step()) for _ in range(BLOCK)) / BLOCK


def start(policy: str, policy_settings: dict[str, Any], seats: int, num_blocks: int) -> EngineCore:
    """An engine core on the oracle executor."""
    settings: dict[str, Any] = {
        "scheduler": {"use": policy, policy: policy_settings},
        "executor": {"use": "oracle", "oracle": ORACLE},
        "block_size": BLOCK,
        "num_kv_blocks": num_blocks,
        "max_num_seqs": seats,
        "max_num_batched_tokens": 16_384,
    }
    return build_engine_core(load_settings(settings), CLOCK)


def typical(seconds: list[float]) -> float:
    """The lower quartile: whatever else runs on the machine only adds."""
    return statistics.quantiles(seconds, n=4)[0]


def in_turns(benches: dict[str, Bench], measure: Callable[[Bench], float], rounds: int) -> dict[str, list[float]]:
    """One figure per bench and round."""
    seen: dict[str, list[float]] = {name: [] for name in benches}
    for _ in range(rounds):
        for name, bench in benches.items():
            seen[name].append(measure(bench))
    return seen


def ratio(seen: dict[str, list[float]], name: str) -> float:
    """To fcfs, round by round."""
    return statistics.median(one / other for one, other in zip(seen[name], seen["fcfs"], strict=True))


# -- what is measured ------------------------------------------------------------------------------------------------


def steady(policies: list[str], running: int, rounds: int) -> Iterator[str]:
    """Everybody decodes."""
    benches = {policy: Bench(policy, running) for policy in policies}
    seen = in_turns(benches, lambda bench: bench.steps() / running * 1e6, rounds)
    for policy, figures in seen.items():
        each = typical(figures)
        yield f"steady running={running:<5} {policy:14} {each:6.2f} us  x{ratio(seen, policy):.2f}"


def waiting(policies: list[str], running: int, rounds: int) -> Iterator[str]:
    """With and without a crowd that waits; then with somebody who ends in every step, and another in that seat."""
    for policy in policies:
        alone, crowded = (Bench(policy, running, settings=PATIENT.get(policy)) for _ in range(2))
        alone.add(200)
        crowded.add(WAITING)
        for bench in (alone, crowded):
            bench.steps()  # prefixes are hashed once
        pair = {"alone": alone, "crowded": crowded}
        still = in_turns(pair, Bench.steps, rounds)
        moving = in_turns(pair, churn, rounds)
        more, more_moving = (1e3 * (typical(seen["crowded"]) - typical(seen["alone"])) for seen in (still, moving))
        yield f"waiting running={running:<4} {policy:14} {more:+7.3f} ms  {more_moving:+7.3f} ms where one ends a step"


def churn(bench: Bench) -> float:
    """Seconds of a step when somebody has just left, for somebody else to come in."""
    seconds = []
    for _ in range(BLOCK):
        oldest = next(r for r in bench.core.scheduler.unfinished_requests if r.num_computed_tokens)
        bench.core.scheduler.abort_requests([oldest.request_id])
        seconds.append(sum(bench.step()))
    return sum(seconds) / BLOCK


def preempt(running: int, rounds: int, count: int = 16) -> Iterator[str]:
    """Urgent requests that find free seats, and others that must displace somebody."""
    pair = {"free": Bench("priority", running, seats=running + count), "taken": Bench("priority", running)}

    def rush(bench: Bench) -> float:
        before = {request.request_id for request in bench.core.scheduler.unfinished_requests}
        bench.add(count, length=64, priority=-1e6)  # no ageing makes up for that
        seconds = bench.step()[0]
        after = {request.request_id for request in bench.core.scheduler.unfinished_requests}
        bench.core.scheduler.abort_requests(after - before)
        bench.steps()  # those that were displaced return
        return seconds / count * 1e6

    seen = in_turns(pair, rush, 4 * rounds)
    displaced = {name: bench.core.scheduler.get_stats().num_preemptions for name, bench in pair.items()}
    if displaced != {"free": 0, "taken": count * 4 * rounds}:
        raise SystemExit(f"displaced: {displaced}")
    each = typical(seen["taken"]) - typical(seen["free"])
    yield f"preempt running={running:<4} {'priority':14} {each:6.1f} us each"


def add(policies: list[str], rounds: int) -> Iterator[str]:
    """A request of 1,000 tokens, until it waits and its prefix was looked up."""
    for policy in policies:
        bench = Bench(policy, 1)
        figures = []
        for _ in range(rounds * 20):
            took = bench.add(1, length=1_000)
            *_, request = bench.core.scheduler.unfinished_requests
            began = time.thread_time()
            bench.core.scheduler._kv.get_computed_blocks(request)  # type: ignore[attr-defined]  # makes the hashes
            figures.append((took + time.thread_time() - began) * 1e6)
            bench.core.scheduler.abort_requests([request.request_id])
        yield f"add 1,000 tokens    {policy:14} {typical(figures):6.1f} us"


def beside(command: str) -> Iterator[str]:
    """What another engine's scheduler costs, on the same machine, now."""
    if not command:
        yield "beside: nothing measured (--beside COMMAND)"
        return
    done = subprocess.run(shlex.split(command), check=True, stdout=subprocess.PIPE, text=True)
    yield from (f"beside: {line}" for line in done.stdout.splitlines())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("policies", nargs="*", metavar="POLICY", help=", ".join(POLICIES))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--beside", default="", metavar="COMMAND")
    options = parser.parse_args()
    policies = ["fcfs", *(name for name in options.policies or POLICIES if name != "fcfs")]
    if unknown := set(policies) - set(POLICIES):
        raise SystemExit(f"no such policy: {', '.join(sorted(unknown))}")
    gc.freeze()
    rounds = options.rounds
    measured = [
        *(steady(policies, running, rounds) for running in (1, 64, 256, 1_024)),
        beside(options.beside),
        *(steady(["fcfs"], running, rounds) for running in (256, 1_024)),  # again: the machine may have changed
        waiting(policies, 256, rounds),
        *(preempt(running, rounds) for running in (256, 1_024)),
        add(policies, rounds),
    ]
    for lines in measured:
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()
