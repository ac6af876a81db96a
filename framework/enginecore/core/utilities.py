"""Control calls, by name."""

import inspect
import reprlib
import traceback
from collections.abc import Iterable, Mapping
from types import GenericAlias
from typing import Any, NamedTuple, get_type_hints

import msgspec

from enginecore.core.liveness import Liveness
from enginecore.errors import EngineDeadError, InvalidRequestError, UtilityError
from enginecore.interfaces import Executor, Scheduler
from enginecore.messages import SchedulerStats


class Utilities:
    """Control calls: each public method is one, and its annotations say what may come over a wire.

    Attributes:
        is_paused: Whether nothing is to be scheduled until `resume` is called.
    """

    def __init__(self, scheduler: Scheduler, executor: Executor, executor_name: str, liveness: Liveness) -> None:
        self.is_paused = False
        self._scheduler = scheduler
        self._executor = executor
        self._executor_name = executor_name
        self._liveness = liveness

    def is_alive(self) -> bool:
        """True: the engine core answers."""
        return True

    def check_health(self) -> None:
        """Raise EngineDeadError if the executor cannot run steps."""
        self._executor.check_health()

    def pause(self) -> None:
        """Schedule nothing more until `resume`. Steps in flight are settled. Requests are still accepted, and queued;
        aborts and control calls work.
        """
        self.is_paused = True

    def resume(self) -> None:
        """Go on."""
        self.is_paused = False

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget all cached blocks; see `Scheduler.reset_prefix_cache`."""
        with self._liveness.dying_of("reset_prefix_cache"):  # half-way through preemptions requests are nowhere
            return self._scheduler.reset_prefix_cache(reset_running_requests)

    def get_stats(self) -> SchedulerStats:
        """The scheduler's gauges and counters."""
        return self._scheduler.get_stats()

    def collective_rpc(self, method: str, *args: Any) -> list[Any]:
        """Call a method of every worker; one result per rank."""
        return self._executor.collective_rpc(method, *args)

    def start_profile(self, folder: str) -> None:
        """Have the workers record what they do, by their methods `start_profile(folder)` and `stop_profile()`; each
        writes a trace to `folder`.
        """
        self._profile("start_profile", folder)

    def stop_profile(self) -> list[str]:
        """Write what was recorded since `start_profile`; the path of each rank's trace."""
        return self._profile("stop_profile")

    def _profile(self, method: str, *args: Any) -> list[Any]:
        try:
            return self._executor.collective_rpc(method, *args)
        except AttributeError as error:
            raise UtilityError(f"executor {self._executor_name!r} cannot be profiled: {error}") from error


class _Form(NamedTuple):
    """Signature and types of a utility."""

    signature: inspect.Signature
    hints: Mapping[str, Any]


_FORMS: Mapping[str, _Form] = {
    name: _Form(inspect.Signature(list(inspect.signature(method).parameters.values())[1:]), get_type_hints(method))
    for name, method in vars(Utilities).items()
    if inspect.isfunction(method) and not name.startswith("_")
}


def utility_result_type(name: str) -> Any:
    """The return type that a utility declares; a value that came as plain data is converted to it.

    Raises:
        InvalidRequestError: there is no such utility.
    """
    return _form(name).hints["return"]


def call_utility(utilities: Utilities, name: str, args: Iterable[Any]) -> Any:
    """Call a utility by name, with arguments that may be plain data.

    Raises:
        InvalidRequestError: there is none of this name, or its arguments are wrong.
        EngineDeadError: the executor is dead, or the call has cost the engine its life.
        UtilityError: anything else that went wrong in it.
    """
    arguments = _checked(name, _form(name), args)
    try:
        return getattr(utilities, name)(*arguments)
    except (InvalidRequestError, EngineDeadError, UtilityError):
        raise
    except Exception as error:
        raise UtilityError(
            f"utility {name!r} failed: {type(error).__name__}: {error}",
            traceback="".join(traceback.format_exception(error)),
        ) from error


def _form(name: str) -> _Form:
    if name not in _FORMS:
        raise InvalidRequestError(f"no utility {name!r}; there are {', '.join(sorted(_FORMS))}")
    return _FORMS[name]


def _checked(name: str, form: _Form, args: Iterable[Any]) -> tuple[Any, ...]:
    """The arguments, as the types that the utility declares."""
    try:
        bound = form.signature.bind(*args)
    except TypeError as error:
        raise InvalidRequestError(f"utility {name}{form.signature}: {error}") from None
    for argument, value in bound.arguments.items():
        wanted = form.hints[argument]
        if form.signature.parameters[argument].kind is inspect.Parameter.VAR_POSITIONAL:
            wanted = GenericAlias(tuple, (wanted, ...))
        try:
            bound.arguments[argument] = msgspec.convert(value, wanted)
        except (msgspec.ValidationError, TypeError) as error:
            raise InvalidRequestError(
                f"utility {name}{form.signature}: argument {argument!r} is {reprlib.repr(value)}: {error}"
            ) from None
    return bound.args
