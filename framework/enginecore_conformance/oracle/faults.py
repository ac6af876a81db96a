"""Faults that the oracle injects."""

from collections.abc import Collection, Iterable

from enginecore.messages import ModelRunnerOutput
from enginecore_conformance.oracle.settings import Fault


class OracleFault(Exception):
    """Raised by a step that was to fail."""


class FaultInjector:
    """Holds the faults that have not happened yet."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._faults = list(faults)

    def add(self, fault: Fault) -> None:
        """One more to happen."""
        self._faults.append(fault)

    def take_failure(self, step: int) -> Fault | None:
        """The fault that makes this step fail, if one does."""
        due = (fault for fault in self._faults if fault.kind in ("fail", "die") and step >= fault.step)
        if fault := next(due, None):
            self._faults.remove(fault)
        return fault

    def distort(self, output: ModelRunnerOutput, computed: Collection[str]) -> None:
        """Change an output in place by the faults that are due; its step computed tokens of these
        requests.
        """
        for fault in [fault for fault in self._faults if fault.kind not in ("fail", "die")]:
            members = computed if fault.kind == "reject" else output.request_ids
            if output.step >= fault.step and (fault.kind == "unknown" or fault.request_id in members):
                self._faults.remove(fault)
                self._apply(fault, output)

    def _apply(self, fault: Fault, output: ModelRunnerOutput) -> None:
        if fault.kind == "unknown":
            output.request_ids.append(fault.request_id)
            output.sampled_token_ids.append([0])
            return
        if fault.request_id in output.request_ids:
            row = output.request_ids.index(fault.request_id)
            del output.request_ids[row], output.sampled_token_ids[row]
        output.logprobs.pop(fault.request_id, None)
        if fault.kind in ("error", "reject"):
            output.errors[fault.request_id] = f"the oracle was set to fail request {fault.request_id!r}"
