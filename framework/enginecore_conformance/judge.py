"""Attribution of errors to the rules that they break."""

import traceback
from collections.abc import Mapping
from pathlib import Path

from enginecore.contracts import BrokenRule
from enginecore.errors import InvariantError

RULES: Mapping[str, str] = {
    "oracle": "policy_does_not_change_tokens",
    "transcript": "one_last_word",
    "invariants": "nothing_is_left",
    "harness": "progress_or_a_wake_time",
}
"""By the part of the kit that raises an InvariantError."""


class Judge:
    """Turns an error that is raised within into a BrokenRule of the component of this kind."""

    def __init__(self, kind: str, rules: Mapping[str, str] | None = None) -> None:
        """`rules`: where they differ from `RULES`."""
        self._kind: str = kind
        self._rules = {**RULES, **(rules or {})}

    def __enter__(self) -> None:
        return None

    def __exit__(self, raised: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, BrokenRule) or not isinstance(error, Exception):
            return
        if isinstance(error, InvariantError):
            rule = self._rules.get(_origin(error), "its_own_books_hold")
            raise BrokenRule(self._kind, rule, str(error)) from error
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
        raise BrokenRule(self._kind, "nothing_is_raised", f"{type(error).__name__}: {error}, in {where}") from error


def _origin(error: BaseException) -> str:
    """The module or package of the kit whose code raised the error; "" if other code did."""
    frames = list(traceback.walk_tb(error.__traceback__))
    package, _, rest = frames[-1][0].f_globals["__name__"].partition(".")
    return rest.partition(".")[0] if package == __package__ else ""
