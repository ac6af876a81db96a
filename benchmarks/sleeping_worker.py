"""A rank of `multiproc` whose steps take `SECONDS` and compute nothing: shows what overlap hides."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from enginecore.messages import ModelRunnerOutput, SchedulerOutput
from enginecore.processes import Parent
from enginecore_torch.control import Ready
from enginecore_torch.worker import run

SECONDS = 0.010


class SleepingRank:
    """Fills `Rank`."""

    def ready(self) -> Ready:
        """Nothing was loaded."""
        return Ready("float32", "cpu", 1)

    def measure(self) -> int:
        """No matter."""
        return 1

    def initialize(self, num_blocks: int) -> None:
        """There is no KV cache."""

    def learn(self, step: int, token_ids: list[int]) -> None:
        """There is one stage."""

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        """A token for everybody, after a while."""
        time.sleep(SECONDS)
        ids = list(plan.num_scheduled_tokens)
        return ModelRunnerOutput(step=plan.step, request_ids=ids, sampled_token_ids=[[1]] * len(ids))

    def call(self, method: str, args: Sequence[Any]) -> Any:
        """There are no methods."""
        raise AttributeError(method)


def main(payload: Mapping[str, Any], parent: Parent) -> int:
    """Run a rank."""
    return run(payload, parent, SleepingRank)
