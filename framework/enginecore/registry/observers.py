"""Calls of the observer hooks, each implementation on its own."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pluggy

from enginecore.interfaces import RequestRecord, StepRecord

logger = logging.getLogger(__name__)


class _Implementation(NamedTuple):
    plugin: str
    call: Any  # pluggy's HookCaller, narrowed to this plugin


class Observers:
    """The observers of one registry, in pluggy's order of call.

    An exception in one changes nothing for the others.

    The first exception of each plugin is logged with its traceback, later ones are only counted.
    """

    def __init__(self, manager: pluggy.PluginManager) -> None:
        self._step_finished = _implementations(manager, "enginecore_step_finished")
        self._request_finished = _implementations(manager, "enginecore_request_finished")
        self._failures: Counter[str] = Counter()

    @property
    def has_step_observers(self) -> bool:
        """Whether there are observers of steps; if not, the record need not be made."""
        return bool(self._step_finished)

    @property
    def has_request_observers(self) -> bool:
        """Whether there are observers of requests; if not, the record need not be made."""
        return bool(self._request_finished)

    @property
    def failures(self) -> Mapping[str, int]:
        """Exceptions so far, by plugin; plugins without any are left out."""
        return dict(self._failures)

    def step_finished(self, record: StepRecord) -> None:
        """Pass the record of a settled step to its observers."""
        self._notify(self._step_finished, record)

    def request_finished(self, record: RequestRecord) -> None:
        """Pass the record of a finished request to its observers."""
        self._notify(self._request_finished, record)

    def _notify(self, implementations: Sequence[_Implementation], record: StepRecord | RequestRecord) -> None:
        for plugin, call in implementations:
            try:
                call(record=record)
            except KeyboardInterrupt:
                raise
            except BaseException:
                self._failures[plugin] += 1
                if self._failures[plugin] == 1:
                    logger.exception("observer of plugin %s failed; its later failures are only counted", plugin)


def _implementations(manager: pluggy.PluginManager, hook: str) -> list[_Implementation]:
    calls: list[_Implementation] = []
    for implementation in reversed(getattr(manager.hook, hook).get_hookimpls()):  # pluggy calls the last one first
        others = [plugin for plugin in manager.get_plugins() if plugin is not implementation.plugin]
        call = manager.subset_hook_caller(hook, remove_plugins=others)
        calls.append(_Implementation(implementation.plugin_name, call))
    return calls
