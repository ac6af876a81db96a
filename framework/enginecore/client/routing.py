"""Routes of requests: which engine core has which request, and how answers of several
become one.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from enginecore.errors import ConfigurationError, EngineDeadError, InvalidRequestError
from enginecore.messages import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineInfo,
    FinishReason,
    LoopStats,
    SchedulerStats,
)

MUST_AGREE = ("model", "vocab_size", "eos_token_ids", "dtype")
"""Fields of EngineInfo that are the same for all engine cores behind one front end."""

OutputCallback = Callable[[int, EngineCoreOutputs], None]
"""Called with the index of an engine core and the outputs that it gave."""


class Route(Protocol):
    """Chooses the engine core of each request. A function will do."""

    def __call__(self, request: EngineCoreRequest, /) -> int:
        """The index of the engine core that the request is sent to. Called once per request."""
        ...


def ignore_outputs(index: int, outputs: EngineCoreOutputs) -> None:
    """The default of an `OutputCallback`."""


class RoutingTable:
    """Which engine core has which unfinished request.

    Attributes:
        failures: Why engine cores have failed, by index.
        client_index: Makes the ids of a routed client's requests unique in every engine core: a
            random number, which no engine core gives to its front ends.
    """

    def __init__(self, num_cores: int, route: Route) -> None:
        self.failures: dict[int, EngineDeadError] = {}
        self.client_index = secrets.randbits(62)
        self._num_cores = num_cores
        self._route = route
        self._cores: dict[str, int] = {}  # by request id

    @property
    def running(self) -> list[int]:
        """Indices of the engine cores that have not failed."""
        return [index for index in range(self._num_cores) if index not in self.failures]

    @property
    def busy(self) -> set[int]:
        """Indices of the engine cores that have unfinished requests."""
        return set(self._cores.values())

    def choose(self, request: EngineCoreRequest) -> int:
        """The index of the engine core that a request is sent to.

        Raises:
            InvalidRequestError: a request with this id is unfinished, or the route chose no engine
                core.
            EngineDeadError: the engine core has failed.
        """
        if request.request_id in self._cores:
            raise InvalidRequestError(f"request {request.request_id!r} is unfinished: its id cannot be used again")
        index = self._route(request)
        if not isinstance(index, int) or not 0 <= index < self._num_cores:
            raise InvalidRequestError(
                f"request {request.request_id!r}: the route chose engine core {index!r}; "
                f"it must be one of 0 to {self._num_cores - 1}"
            )
        if index in self.failures:
            raise EngineDeadError(_failed(index, self.failures[index])) from self.failures[index]
        return index

    def add_request(self, request_id: str, index: int) -> None:
        """A request was sent to this engine core."""
        self._cores[request_id] = index

    def remove_requests(self, request_ids: Iterable[str]) -> Mapping[int, list[str]]:
        """Forget requests; the ids of those that were unfinished, by engine core."""
        by_core: dict[int, list[str]] = {}
        for request_id in request_ids:
            if (index := self._cores.pop(request_id, None)) is not None:
                by_core.setdefault(index, []).append(request_id)
        return by_core

    def settle(self, index: int, outputs: EngineCoreOutputs) -> EngineCoreOutputs:
        """The outputs of an engine core for the front end: never idle, since the other engine cores
        may not be. A request that an idle engine core has not ended will never end there, and ends
        here by an error.
        """
        self.remove_requests(output.request_id for output in outputs.outputs if output.finish_reason is not None)
        if not outputs.idle:
            return outputs
        lost = self._end_requests(index, f"engine core {index} has nothing left to do, and never ended this request")
        return EngineCoreOutputs(outputs=[*outputs.outputs, *lost.outputs], timestamp=outputs.timestamp)

    def fail(self, index: int, error: EngineDeadError) -> EngineCoreOutputs:
        """An engine core has failed: the ends of its requests."""
        self.failures[index] = error
        return self._end_requests(index, _failed(index, error))

    def dead_error(self) -> EngineDeadError:
        """The error of a client all of whose engine cores have failed."""
        index, cause = next(iter(self.failures.items()))
        error = EngineDeadError(f"no engine core is left: {_failed(index, cause)}")
        error.__cause__ = cause
        return error

    def _end_requests(self, index: int, error: str) -> EngineCoreOutputs:
        lost = [request_id for request_id, core in self._cores.items() if core == index]
        self.remove_requests(lost)
        return EngineCoreOutputs(
            outputs=[EngineCoreOutput(each, [], finish_reason=FinishReason.ERROR, error=error) for each in lost]
        )


def _failed(index: int, error: EngineDeadError) -> str:
    return f"engine core {index} has failed: {error}"


def common_info(infos: Sequence[EngineInfo]) -> EngineInfo:
    """Facts in force for all engine cores: the first one's, with the smallest limit of a
    request's length.

    Raises:
        ConfigurationError: there is none, or they serve different models.
    """
    if not infos:
        raise ConfigurationError("a routed client needs at least one engine core")
    for name in MUST_AGREE:
        values = [getattr(info, name) for info in infos]
        if any(value != values[0] for value in values):
            raise ConfigurationError(f"engine cores behind one front end must have the same {name}, got {values}")
    return msgspec.structs.replace(infos[0], max_model_len=min(info.max_model_len for info in infos))


def folded(name: str, answers: Sequence[Any]) -> Any:
    """One value for a control call that several engine cores have answered: by value, or by the
    error that it raised.

    Statistics are summed, lists joined, and of booleans all must be true; of anything else the
    first one is returned. An engine core that is dead gives no answer.

    Raises:
        EngineDeadError: all are dead.
        BaseException: the first error of one that is alive.
    """
    values = [answer for answer in answers if not isinstance(answer, EngineDeadError)]
    if not values:
        raise EngineDeadError(f"utility {name!r}: no engine core is left") from next(iter(answers), None)
    for value in values:
        if isinstance(value, BaseException):
            raise value
    match values[0]:
        case bool():
            return all(values)
        case SchedulerStats() | LoopStats():
            return _sum(values)
        case list():
            return [item for value in values for item in value]
    return values[0]


def _sum(stats: Sequence[SchedulerStats | LoopStats]) -> SchedulerStats | LoopStats:
    """One record of all engine cores. The step is a serial number: the highest."""
    values = {name: [getattr(each, name) for each in stats] for name in stats[0].__struct_fields__}
    return type(stats[0])(**{name: max(each) if name == "step" else sum(each) for name, each in values.items()})
