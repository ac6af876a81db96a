"""Workers for tests: one without a model, and the real one, which fail when and how they are told.

Faults at start come in the environment, those of steps in the plan's extensions, those of calls by their names.
"""

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from enginecore.messages import ModelRunnerOutput, SchedulerOutput
from enginecore_torch.multiproc.worker import run
from enginecore_torch.parallel.layout import Layout, split
from enginecore_torch.rank import Rank, RankInfo, is_deferred

FAULTS = "FAKE_WORKER_FAULTS"
DEVICE = "FAKE_WORKER_DEVICE"


class PeculiarError(Exception):
    """Cannot be made from a message."""

    def __init__(self, code: int, place: str) -> None:
        super().__init__(f"{code} at {place}")


def misbehave(what: str) -> None:
    """Do it."""
    if what == "raise":
        raise PeculiarError(17, "the fake worker")
    if what == "exit":
        os._exit(3)
    if what == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "sleep":
        time.sleep(1000)
    if what == "ignore":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        time.sleep(1000)


NUM_LAYERS = 3


class FakeRank(Rank):
    """Answers each scheduled request with a token that names the order."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self.rank: int = payload["rank"]
        settings = payload["settings"]
        layout = Layout(settings["tensor_parallel_size"], settings["pipeline_parallel_size"])
        self.layers = split(NUM_LAYERS, layout.pipeline)[layout.stage_of(self.rank)]
        self.answers = self.rank == layout.output_rank
        self.learned: list[Any] = []
        self.deferred: dict[int, SchedulerOutput] = {}

    @property
    def info(self) -> RankInfo:
        device = os.environ.get(DEVICE, "cpu").replace("N", str(self.rank))
        return RankInfo("float32", device, {f"model.layers.{layer}": 1000 + self.rank for layer in self.layers})

    def measure_free_memory(self) -> int:
        return 1_000_000 - self.rank

    def initialize_kv_cache(self, num_blocks: int) -> None:
        pass

    def fill_tokens(self, step: int, token_ids: list[int]) -> None:
        self.learned.append([step, token_ids])

    def execute_model(self, plan: SchedulerOutput) -> ModelRunnerOutput | None:
        misbehave(plan.extensions.get("faults", {}).get(str(self.rank), ""))
        time.sleep(plan.extensions.get("seconds", 0.0))
        if is_deferred(plan):
            self.deferred[plan.step] = plan
            return None
        return self.output_of(plan)

    def sample_tokens(self, step: int) -> ModelRunnerOutput | None:
        return self.output_of(self.deferred.pop(step))

    def output_of(self, plan: SchedulerOutput) -> ModelRunnerOutput | None:
        if not self.answers:
            return None
        ids = list(plan.num_scheduled_tokens)
        return ModelRunnerOutput(step=plan.step, request_ids=ids, sampled_token_ids=[[plan.step]] * len(ids))

    def call(self, method: str, args: Sequence[Any]) -> Any:
        if method == "fault":
            rank, what = args
            if rank == self.rank:
                misbehave(what)
            return None
        if method == "late":
            seconds, value = args
            if self.rank:
                time.sleep(seconds)
            else:
                raise PeculiarError(18, "rank 0")
            return value
        if method == "echo":
            return [self.rank, *args]
        if method == "learned":
            return self.learned
        if method == "unspeakable":
            return lambda: None
        raise AttributeError(f"no method {method!r}")


def main(payload: Mapping[str, Any], parent: Any) -> int:
    """Without a model, and without torch."""

    def load() -> FakeRank:
        misbehave(json.loads(os.environ.get(FAULTS, "{}")).get(str(payload["rank"]), ""))
        return FakeRank(payload)

    return run(payload, parent, load)


def real(payload: Mapping[str, Any], parent: Any) -> int:
    """The real worker, whose steps fail where the plan says so: rank by rank, while its peers wait for it."""
    from enginecore_torch.multiproc.loading import load_rank
    from enginecore_torch.runner import ModelRunner

    def load() -> Any:
        rank = load_rank(payload)
        forward = ModelRunner._forward

        def failing(self: ModelRunner, inputs: Any) -> Any:
            misbehave(faults.get(str(payload["rank"]), ""))
            return forward(self, inputs)

        faults: dict[str, str] = {}
        execute = rank.execute_model

        def noting(plan: SchedulerOutput) -> ModelRunnerOutput | None:
            faults.update(plan.extensions.get("faults", {}))
            return execute(plan)

        ModelRunner._forward = failing  # type: ignore[method-assign]
        rank.execute_model = noting  # type: ignore[method-assign]
        return rank

    return run(payload, parent, load)


def meeting(payload: Mapping[str, Any], parent: Any) -> int:
    """The real worker. A rank that is told to fail does so in the rendezvous, where another waits for it.

    "kill" is before it has joined the others; "join, kill" is after, while they make groups.
    """
    from torch import distributed

    from enginecore_torch.multiproc.worker import main as work
    from enginecore_torch.parallel.distributed import RENDEZVOUS_FILE

    what = json.loads(os.environ.get(FAULTS, "{}")).get(str(payload["rank"]), "")
    join = distributed.init_process_group

    def failing(*args: Any, **kwargs: Any) -> None:
        file = Path(payload["directory"]) / RENDEZVOUS_FILE
        while not (file.exists() and file.stat().st_size):  # the other has not said where it is
            time.sleep(0.01)
        if what.startswith("join"):
            join(*args, **kwargs)
        misbehave("kill")

    if what:
        distributed.init_process_group = failing
    return work(payload, parent)


def skewed(payload: Mapping[str, Any], parent: Any) -> int:
    """The real worker, whose ranks differ in all that must not matter: time, random numbers, free memory."""
    import random

    import torch

    from enginecore_torch.multiproc.loading import load_rank

    rank = payload["rank"]
    monotonic, wall = time.monotonic, time.time
    time.monotonic = lambda: monotonic() + 1e6 * rank
    time.time = lambda: wall() - 1e6 * rank

    def load() -> Any:
        loaded = load_rank(payload)
        random.seed(rank)
        torch.manual_seed(rank)
        free = loaded.measure_free_memory()
        loaded.measure_free_memory = lambda: free // (1 + rank)  # type: ignore[method-assign]
        return loaded

    return run(payload, parent, load)
