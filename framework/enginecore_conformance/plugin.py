"""Entry point of the kit's components: the executor `oracle`."""

from collections.abc import Iterable

from enginecore.interfaces import Executor
from enginecore.plugin import Component, ExecutorContext, hookimpl
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
            summary="No model: tokens are right only if blocks, slots and tokens are handled right. For tests.",
        )
    ]
