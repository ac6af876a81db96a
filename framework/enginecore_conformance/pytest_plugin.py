"""pytest plugin: `pytest --pyargs enginecore_conformance --component scheduler:NAME`.

Light: pytest imports it wherever enginecore is installed.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("enginecore", "conformance of enginecore components")
    group.addoption(
        "--component",
        action="append",
        default=[],
        metavar="KIND:NAME",
        help="Check this component with `--pyargs enginecore_conformance`. MODULE:NAME for one that is not installed. "
        "May be repeated.",
    )
    group.addoption(
        "--component-set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="A setting of the engine that they are checked in, such as scheduler.NAME.KEY=VALUE. May be repeated.",
    )
    group.addoption(
        "--component-skip",
        action="append",
        default=[],
        metavar="CHECK=REASON",
        help="A rule that need not hold, and why. May be repeated.",
    )
