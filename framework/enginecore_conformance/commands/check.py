"""The command `enginecore check`: the checks of a component."""

import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from enginecore.cli.options import AsJson, Overrides
from enginecore.settings import parse_overrides
from enginecore_conformance import PreparedCheck, prepare
from enginecore_conformance.checks import Result
from enginecore_conformance.opt_outs import parse_opt_outs

_COLOURS = {"passed": "green", "skipped": "yellow", "failed": "red"}

Skips = Annotated[
    list[str] | None,
    typer.Option("--skip", metavar="CHECK=REASON", help="A rule that need not hold, and why. May be repeated."),
]
Only = Annotated[list[str] | None, typer.Option("--only", metavar="CHECK", help="Only this check. May be repeated.")]


def check(
    component: Annotated[str, typer.Argument(help="KIND:NAME, such as scheduler:fcfs, or MODULE:NAME of a Component.")],
    overrides: Overrides = None,
    skip: Skips = None,
    only: Only = None,
    as_json: AsJson = False,
    list_only: Annotated[bool, typer.Option("--list", help="List the checks, and run none.")] = False,
) -> None:
    """Check a component against its contract.

    Exits with 1 if a rule is broken, or if an opt-out is not needed.
    """
    if os.getcwd() not in sys.path:  # where MODULE:NAME is looked for, too
        sys.path.insert(0, os.getcwd())
    prepared = prepare(component, skip=parse_opt_outs(skip or ()), only=only, engine=parse_overrides(overrides or ()))
    if list_only:
        _print_rules(prepared, as_json)
        return
    try:
        with _each_failure_logged_once():
            results = _run(component, prepared)
    finally:
        for item in prepared:
            item.close()
    if as_json:
        typer.echo(json.dumps([_as_plain(result) for result in results], indent=2))
    else:
        _print_results(component, results)
    if any(result.outcome == "failed" for result in results):
        raise typer.Exit(1)


class _Once(logging.Filter):
    """Lets through only the first of log records that differ in nothing but the request."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[tuple[str, str]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        key = str(record.msg), repr(error) if error else record.getMessage()
        is_new = key not in self._seen
        self._seen.add(key)
        return is_new


@contextmanager
def _each_failure_logged_once() -> Iterator[None]:
    """Log one traceback of a failure, not one per request: a policy may fail on thousands."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.addFilter(_Once())
    logger = logging.getLogger("enginecore")
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def _run(component: str, prepared: Sequence[PreparedCheck]) -> list[Result]:
    """Run them one by one; on a terminal, say which is running."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return [item.run() for item in prepared]
    results: list[Result] = []
    with console.status("") as status:
        for item in prepared:
            status.update(f"Checking {escape(component)}: {escape(str(item))} ({len(results) + 1} of {len(prepared)})")
            results.append(item.run())
    return results


def _print_rules(prepared: Sequence[PreparedCheck], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([{"check": str(item), "rule": item.check.rule} for item in prepared], indent=2))
        return
    table = Table("check", "rule", show_lines=True)
    for item in prepared:
        table.add_row(escape(str(item)), escape(item.check.rule))
    Console().print(table)


def _print_results(component: str, results: Sequence[Result]) -> None:
    console = Console()
    table = Table()
    table.add_column("check", no_wrap=True)
    table.add_column("outcome")
    table.add_column("seconds", justify="right")
    for result in results:
        outcome = f"[{_COLOURS[result.outcome]}]{result.outcome}[/]"
        table.add_row(escape(result.check.name), outcome, f"{result.seconds:.2f}")
    console.print(table)
    skipped, failed = ([each for each in results if each.outcome == outcome] for outcome in ("skipped", "failed"))
    for result in (*skipped, *failed):
        console.print(escape(str(result)), soft_wrap=True, highlight=False)
    num_passed = len(results) - len(skipped) - len(failed)
    ending = f", {len(skipped)} skipped" if skipped else ""
    console.print(f"\n{escape(component)}: {num_passed} of {len(results)} checks passed{ending}")


def _as_plain(result: Result) -> dict[str, Any]:
    return {
        "check": result.check.name,
        "rule": result.check.rule,
        "outcome": result.outcome,
        "seen": result.seen,
        "right": result.right,
        "reason": result.reason,
        "seconds": round(result.seconds, 3),
    }
