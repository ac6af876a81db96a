"""`simulated`: steps that take as long as a cost model says, on the kernel's virtual clock."""

from collections.abc import Iterable

from enginecore.plugin import Component, hookimpl


@hookimpl
def enginecore_components() -> Iterable[Component]:
    """This package's components."""
    return ()
