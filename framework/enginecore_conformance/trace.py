"""Traces: calls of a component as data, to be run again, made smaller, and printed as a test."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _keywords(arguments: Mapping[str, Any]) -> list[str]:
    return [f"{name}={_shown(value)}" for name, value in arguments.items()]


@dataclass(frozen=True, slots=True)
class Move:
    """One call of a method of a run.

    Attributes:
        method: Name of the method.
        args: Positional arguments.
        kwargs: Keyword arguments.
    """

    method: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        args = [*map(_shown, self.args), *_keywords(self.kwargs)]
        return f"run.{self.method}({', '.join(args)})"


@dataclass(frozen=True, slots=True)
class Trace:
    """Moves of a run under conditions.

    Attributes:
        conditions: Keyword arguments of the run.
        moves: In order. The end, when everything is run to its end, goes without saying.
    """

    conditions: Mapping[str, Any]
    moves: tuple[Move, ...]

    @property
    def size(self) -> int:
        """Size of a trace: smaller ones have less of it."""
        return len(str(self.conditions)) + sum(40 + len(str(move)) for move in self.moves)

    def as_test(self, run: type, name: str, reference: str, options: Mapping[str, Any]) -> str:
        """A test that can be pasted into a file.

        Args:
            run: Class of the run.
            name: Name of the rule that it is about.
            reference: Reference that finds the component.
            options: Further keyword arguments of the run, such as the component's own settings.
        """
        arguments = {**options, **self.conditions}
        given = ", ".join([_shown(reference), *_keywords(arguments)])
        lines = [
            f"from {run.__module__.rpartition('.')[0]} import {run.__name__}",
            "",
            "",
            f"def test_{name}():",
            f"    run = {run.__name__}({given})",
            *(f"    {move}" for move in self.moves),
            "    run.finish()",
        ]
        return "\n".join(lines)
