"""Engine cores for what the oracle cannot be made to do."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from enginecore.core import EngineCore
from enginecore.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, EngineInfo, FinishReason
from tests.core.engines import make_core

INFO = make_core().info


class CountedCore:
    """An engine core that counts how often each of its methods is called."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self.counts: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._core, name)
        if not callable(attribute):
            return attribute

        def counted(*args: Any) -> Any:
            self.counts[name] += 1
            return attribute(*args)

        return counted


class ScriptedCore:
    """Fills `EngineCoreApi`; once it has a request, each step gives what a script says.

    `ran` says of each step whether a forward pass ran; `outputs` gives those of each step for client 0; `utilities` are
    what may be called. `done` is set when the script is at its end.
    """

    info: EngineInfo = INFO
    is_paused = False

    def __init__(
        self, *, ran: Iterable[bool] = (), outputs: Iterable[list[EngineCoreOutput]] = (), utilities: Any = None
    ) -> None:
        self._outputs = list(outputs)
        self._ran = list(ran) or [True] * len(self._outputs)
        self._utilities = utilities or {}
        self._step = 0
        self.done = threading.Event()
        self.requests: list[EngineCoreRequest] = []
        self.aborted: list[str] = []
        self._gone: set[str] = set()
        self.callbacks: list[Callable[[BaseException], None]] = []

    def more(self, outputs: list[list[EngineCoreOutput]]) -> None:
        """Go on once the next request comes."""
        self.requests.clear()
        self._outputs += outputs
        self._ran += [True] * len(outputs)

    def add_request(self, request: EngineCoreRequest) -> None:
        self.requests.append(request)
        self._gone.discard(request.request_id)

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        request_ids = list(request_ids)
        self.aborted += request_ids
        self._gone |= set(request_ids)

    def abort_client(self, client_index: int) -> None:
        pass

    def has_requests(self) -> bool:
        return bool(self.requests) and self._step < len(self._ran)

    def has_unfinished_requests(self) -> bool:
        return self.has_requests()

    def advance(self) -> tuple[Mapping[int, EngineCoreOutputs], bool]:
        step, self._step = self._step, self._step + 1
        if self._step == len(self._ran):
            self.done.set()
        due = self._outputs[step] if self._outputs else []
        left = [output for output in due if output.request_id not in self._gone]
        return {0: EngineCoreOutputs(outputs=left)}, self._ran[step]

    def finish_all(self, reason: FinishReason) -> Mapping[int, EngineCoreOutputs]:
        return {}

    def call_utility(self, name: str, *args: Any) -> Any:
        return self._utilities[name](*args)

    def register_failure_callback(self, callback: Callable[[BaseException], None]) -> None:
        self.callbacks.append(callback)

    def shutdown(self) -> None:
        pass
