"""Named checks, of which conformance kits are made, for components of every kind.

A check is a function with a docstring that states the rule. It gets a bench, which belongs to its
kind, and raises `Violation` with what was seen and what would be right.
"""

import inspect
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, Literal, Protocol, TypeVar

from enginecore.errors import ConfigurationError, InvariantError
from enginecore.registry.spelling import closest

CLOSING_TIME = 10.0
"""Seconds that a bench may take to be cleared before the next check goes ahead."""


MOST_FRAMES = 5
"""Of a traceback that are shown."""


class Violation(InvariantError):
    """A rule is broken.

    Attributes:
        seen: The event that breaks the rule.
        right: The right event in its place.
    """

    def __init__(self, seen: str, right: str) -> None:
        super().__init__(f"{seen}; right: {right}")
        self.seen = seen
        self.right = right


class NotApplicable(Exception):
    """The check is not for this component, as turned out when it was built. Says why."""


class Bench(Protocol):
    """The workbench of a check: sets up the component, and clears it away. Each check gets a new
    one.
    """

    def close(self) -> None:
        """Clear away everything that was set up."""
        ...


B = TypeVar("B", bound=Bench)


@dataclass(frozen=True, slots=True)
class Check(Generic[B]):
    """One rule.

    Attributes:
        name: Name of the check, by which it is opted out of.
        kind: Kind of the components that it is for.
        needs: Capabilities of the components that it is for.
        rule: The rule, as a sentence.
        function: Raises if it does not.
    """

    name: str
    kind: str
    needs: frozenset[str]
    rule: str
    function: Callable[[B], None]


def check(kind: str, *needs: str) -> Callable[[Callable[[B], None]], Check[B]]:
    """Make a function a check of components of `kind` that have these capabilities. Its docstring
    is the rule.
    """

    def made(function: Callable[[B], None]) -> Check[B]:
        rule = " ".join(inspect.cleandoc(function.__doc__ or "").split())
        return Check(function.__name__, kind, frozenset(needs), rule, function)

    return made


def checks_of(*modules: ModuleType) -> tuple[Check[Any], ...]:
    """All checks in these modules, in order."""
    return tuple(value for module in modules for value in vars(module).values() if isinstance(value, Check))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of a check.

    Attributes:
        check: The check.
        outcome: How it ended.
        seen: The event that broke the rule, if it failed.
        right: The right event in its place, if it failed.
        reason: Why it was skipped: it is opted out of, and failed, as was to be expected; or it is
            not applicable.
        seconds: How long it took.
    """

    check: Check[Any]
    outcome: Literal["passed", "failed", "skipped"]
    seen: str = ""
    right: str = ""
    reason: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        lines = [f"{self.outcome} {self.check.name}" + (f": {self.reason}" if self.reason else "")]
        if self.outcome == "failed":
            lines += [f"  rule:  {self.check.rule}", f"  seen:  {self.seen}", f"  right: {self.right}"]
        return "\n".join(lines)

    def require(self) -> None:
        """Raise InvariantError if the check failed."""
        if self.outcome == "failed":
            raise InvariantError(str(self))


@dataclass(frozen=True, slots=True)
class Report:
    """The outcomes of all checks of a component.

    Attributes:
        subject: The component under check.
        results: One per check.
    """

    subject: str
    results: tuple[Result, ...]

    @property
    def failed(self) -> tuple[Result, ...]:
        """The checks that failed."""
        return tuple(result for result in self.results if result.outcome == "failed")

    def __str__(self) -> str:
        skipped = [result for result in self.results if result.outcome == "skipped"]
        num_passed = len(self.results) - len(self.failed) - len(skipped)
        seconds = sum(result.seconds for result in self.results)
        head = f"{self.subject}: {num_passed} of {len(self.results)} checks passed in {seconds:.1f} s"
        return "\n".join([head, *map(str, (*self.failed, *skipped))])

    def require(self) -> "Report":
        """Raise InvariantError if a check failed; the report, if none did."""
        if self.failed:
            raise InvariantError(str(self))
        return self


def choose(
    checks: Sequence[Check[B]],
    capabilities: Iterable[str],
    skip: Mapping[str, str],
    only: Collection[str] | None = None,
) -> tuple[tuple[Check[B], str], ...]:
    """The checks for a component with these capabilities, each with the reason to opt out of it, if
    there is one.

    Args:
        checks: All of its kind.
        capabilities: Capabilities of the component.
        skip: Reasons by name of the check.
        only: Names of those that are wanted; None: all.

    Raises:
        ConfigurationError: `skip` or `only` names no check of this component, or `skip` gives no
            reason.
    """
    chosen = [item for item in checks if item.needs <= frozenset(capabilities)]
    names = [item.name for item in chosen]
    for argument, given in (("skip", skip), ("only", only or ())):
        for name in given:
            if name not in names:
                hint = closest(name, names) or f"; there are {', '.join(names)}"
                raise ConfigurationError(f"{argument} names {name!r}, which is no check of this component{hint}")
    for name, reason in skip.items():
        if not reason.strip():
            raise ConfigurationError(f"skip names {name!r} without a reason: say why this rule need not hold")
    return tuple((item, skip.get(item.name, "")) for item in chosen if only is None or item.name in only)


def run_check(item: Check[B], make_bench: Callable[[], B], time_limit: float) -> Result:
    """Run a check on a thread of its own, so that a component that hangs is a result like any
    other.
    """
    began = time.monotonic()
    attempt = _Attempt(item, make_bench)
    thread = threading.Thread(target=attempt.run, name=f"check-{item.name}", daemon=True)
    thread.start()
    ended = attempt.done.wait(time_limit)
    seconds = time.monotonic() - began
    if not ended:
        where = _shown(traceback.extract_stack(sys._current_frames().get(thread.ident or 0)))
        attempt.clear()
        seen, right = f"no end after {time_limit:g} s; it stands at\n{where}", "it ends in milliseconds"
        return Result(check=item, outcome="failed", seen=seen, right=right, seconds=seconds)
    thread.join(CLOSING_TIME)
    error = attempt.error
    if error is None:
        return Result(check=item, outcome="passed", seconds=seconds)
    if isinstance(error, NotApplicable):
        return Result(check=item, outcome="skipped", reason=f"not applicable: {error}", seconds=seconds)
    if isinstance(error, Violation):
        seen, right = error.seen, error.right
    elif isinstance(error, InvariantError):
        seen, right = str(error), "what the rule says"
    else:
        where = _shown(traceback.extract_tb(error.__traceback__))
        seen, right = f"{type(error).__name__}: {error}, raised at\n{where}", "nothing is raised here"
    return Result(check=item, outcome="failed", seen=seen, right=right, seconds=seconds)


def _shown(stack: traceback.StackSummary) -> str:
    """The stack of a check: its own line and the last one, without those between."""
    own = next((at for at, frame in enumerate(stack) if frame.filename == __file__), -1) + 1
    frames = stack[own:]
    return "".join(traceback.format_list(frames if len(frames) <= MOST_FRAMES else frames[:1] + frames[-MOST_FRAMES:]))


class _Attempt:
    """A check that is run once."""

    def __init__(self, item: Check[B], make_bench: Callable[[], B]) -> None:
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._item: Check[Any] = item
        self._make_bench = make_bench
        self._bench: Bench | None = None

    def run(self) -> None:
        """Run it; `done` is set before the bench is cleared, which may hang."""
        try:
            bench = self._bench = self._make_bench()
            self._item.function(bench)
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()
            self._close()

    def clear(self) -> None:
        """Clear away what a check that hangs has set up, which may end it."""
        thread = threading.Thread(target=self._close, name=f"clear-{self._item.name}", daemon=True)
        thread.start()
        thread.join(CLOSING_TIME)

    def _close(self) -> None:
        bench, self._bench = self._bench, None
        if bench is not None:
            bench.close()
