"""A rank of `multiproc` whose steps take `SECONDS` and compute nothing: shows what overlap and stages hide."""

import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from enginecore.messages import ModelRunnerOutput, SchedulerOutput
from enginecore.processes import Parent
from enginecore_torch.multiproc.control import Ready
from enginecore_torch.multiproc.worker import run

SECONDS = 0.010


class SleepingRank:
    """Fills `Rank`. A stage begins its step when the stage before it has ended the same step."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self._stage, self._stages = payload["rank"], payload["settings"]["pipeline_parallel_size"]
        self._directory = Path(payload["directory"])
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self._directory / f"stage-{self._stage}"))

    def ready(self) -> Ready:
        """Nothing was loaded."""
        return Ready("float32", "cpu", 1)

    def measure(self) -> int:
        """No matter."""
        return 1

    def initialize(self, num_blocks: int) -> None:
        """There is no KV cache."""

    def learn(self, step: int, token_ids: list[int]) -> None:
        """It has no use for them."""

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput | None:
        """A token for everybody, after a while."""
        if self._stage:
            self._socket.recv(1)
        time.sleep(SECONDS)
        if self._stage + 1 < self._stages:
            self._socket.sendto(b"x", str(self._directory / f"stage-{self._stage + 1}"))
            return None
        ids = list(plan.num_scheduled_tokens)
        return ModelRunnerOutput(step=plan.step, request_ids=ids, sampled_token_ids=[[1]] * len(ids))

    def call(self, method: str, args: Sequence[Any]) -> Any:
        """There are no methods."""
        raise AttributeError(method)


def main(payload: Mapping[str, Any], parent: Parent) -> int:
    """Run a rank."""
    return run(payload, parent, lambda: SleepingRank(payload))
