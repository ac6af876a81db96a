"""Control calls, by name."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from enginecore.errors import InvalidRequestError
from enginecore.interfaces import Executor, Scheduler
from enginecore.messages import SchedulerStats


class Utilities:
    """The methods below are what `call_utility` reaches; a name that is none of them is refused."""

    def __init__(self, scheduler: Scheduler, executor: Executor) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._methods: Mapping[str, Callable[..., Any]] = {
            method.__name__: method
            for method in (self.reset_prefix_cache, self.get_stats, self.collective_rpc, self.check_health)
        }

    def call(self, name: str, *args: Any) -> Any:
        """Call one.

        Raises:
            InvalidRequestError: no such utility, or its arguments are wrong.
        """
        method = self._methods.get(name)
        if method is None:
            raise InvalidRequestError(f"no utility {name!r}; there are {', '.join(sorted(self._methods))}")
        try:
            inspect.signature(method).bind(*args)
        except TypeError as error:
            raise InvalidRequestError(f"utility {name}{inspect.signature(method)}: {error}") from None
        return method(*args)

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget all cached blocks; see `Scheduler.reset_prefix_cache`."""
        return self._scheduler.reset_prefix_cache(reset_running_requests)

    def get_stats(self) -> SchedulerStats:
        """The scheduler's gauges and counters."""
        return self._scheduler.get_stats()

    def collective_rpc(self, method: str, *args: Any) -> list[Any]:
        """Call a method of every worker; one result per rank."""
        return self._executor.collective_rpc(method, *args)

    def check_health(self) -> None:
        """Raise EngineDeadError if the executor cannot run steps."""
        self._executor.check_health()
