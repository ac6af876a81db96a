"""Entry point of the conformance kits: the executor `oracle`, and the commands for plugin authors."""

from collections.abc import Iterable

from enginecore.interfaces import Executor
from enginecore.plugin import Command, Component, ExecutorContext, hookimpl
from enginecore_conformance.oracle.settings import OracleSettings


def _make_oracle(settings: OracleSettings, context: ExecutorContext) -> Executor:
    from enginecore_conformance.oracle.executor import OracleExecutor

    return OracleExecutor(settings, context)


@hookimpl
def enginecore_components() -> Iterable[Component]:
    """The oracle executor."""
    return [
        Component(
            kind="executor",
            name="oracle",
            factory=_make_oracle,
            settings=OracleSettings,
            summary="No model, for tests: wrong blocks or slots give wrong tokens.",
        )
    ]


@hookimpl
def enginecore_commands() -> Iterable[Command]:
    """Commands for plugin authors."""
    folder = "enginecore_conformance.commands"
    return [
        Command(name="check", target=f"{folder}.check:check", summary="Check a component against its contract."),
        Command(name="new", target=f"{folder}.new:new", summary="Write a package that offers a component."),
    ]
