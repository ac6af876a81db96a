"""A rank of `multiproc` whose steps take `SECONDS` and compute nothing: shows what overlap and stages hide."""

import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from enginecore.messages import ModelRunnerOutput, SchedulerOutput
from enginecore.processes import Parent
from enginecore_torch.multiproc.worker import run
from enginecore_torch.rank import Rank, RankInfo

SECONDS = 0.010


class SleepingRank(Rank):
    """A stage begins its step when the stage before it has ended the same step."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self._stage, self._stages = payload["rank"], payload["settings"]["pipeline_parallel_size"]
        self._directory = Path(payload["directory"])
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self._directory / f"stage-{self._stage}"))

    @property
    def info(self) -> RankInfo:
        return RankInfo("float32", "cpu", {f"model.layers.{self._stage}": 1})

    def measure_free_memory(self) -> int:
        return 1

    def initialize_kv_cache(self, num_blocks: int) -> None:
        """There is no KV cache."""

    def fill_tokens(self, step: int, token_ids: list[int]) -> None:
        """Tokens are not read."""

    def sample_tokens(self, step: int) -> ModelRunnerOutput | None:
        raise NotImplementedError("the benchmark defers no sampling")

    def execute_model(self, plan: SchedulerOutput) -> ModelRunnerOutput | None:
        """Answer each request with a token, after a while."""
        if self._stage:
            self._socket.recv(1)
        time.sleep(SECONDS)
        if self._stage + 1 < self._stages:
            self._socket.sendto(b"x", str(self._directory / f"stage-{self._stage + 1}"))
            return None
        ids = list(plan.num_scheduled_tokens)
        return ModelRunnerOutput(step=plan.step, request_ids=ids, sampled_token_ids=[[1]] * len(ids))

    def call(self, method: str, args: Sequence[Any]) -> Any:
        raise AttributeError(method)


def main(payload: Mapping[str, Any], parent: Parent) -> int:
    """Run a rank."""
    return run(payload, parent, lambda: SleepingRank(payload))
