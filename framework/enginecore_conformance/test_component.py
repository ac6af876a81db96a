"""Tests: the checks of the components that `--component` names. See `pytest_plugin`."""

from typing import Any

import pytest

from enginecore.errors import EngineCoreError
from enginecore.settings import parse_overrides
from enginecore_conformance import PreparedCheck, prepare
from enginecore_conformance.front_doors import cases_of
from enginecore_conformance.opt_outs import parse_opt_outs


def pytest_generate_tests(metafunc: Any) -> None:
    """One test for each check of each component."""
    option = metafunc.config.getoption
    cases = []
    try:
        engine, skip = parse_overrides(option("component_set")), parse_opt_outs(option("component_skip"))
        for name in option("component"):
            cases += cases_of(prepare(name, engine=engine, skip=skip), prefix=f"{name}-")
    except EngineCoreError as error:
        raise pytest.UsageError(str(error)) from error
    if not cases:
        cases = [pytest.param(None, marks=pytest.mark.skip(reason="no component: give --component KIND:NAME"))]
    metafunc.parametrize("check", cases)


def test_component(check: PreparedCheck) -> None:
    """The component keeps its contract."""
    check()
