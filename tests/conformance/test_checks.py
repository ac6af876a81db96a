"""How checks are chosen, run and reported, whatever they check."""

import threading

import pytest

from enginecore.errors import ConfigurationError, InvariantError
from enginecore_conformance.checks import Report, Violation, check, checks_of, choose, run_check
from tests.conformance import test_checks as this_module


class Bench:
    def __init__(self):
        self.closed = threading.Event()

    def close(self):
        self.closed.set()


@check("transport")
def always(bench):
    """It holds:
    always.
    """


@check("transport", "sync")
def never(bench):
    """It never holds."""
    raise Violation("one", "two")


@check("transport", "sync", "channels")
def rarely(bench):
    """It raises."""
    bench.no_such_attribute()


@check("transport")
def invariant(bench):
    """An invariant of another kind."""
    raise InvariantError("3 blocks are free of 2")


CHECKS = checks_of(this_module)


def names(chosen):
    return [item.name for item, _ in chosen]


def test_a_check_is_its_function_and_the_rule_in_its_docstring():
    assert [item.name for item in CHECKS] == ["always", "never", "rarely", "invariant"]
    assert always.rule == "It holds: always."
    assert never.needs == {"sync"}


def test_capabilities_choose():
    assert names(choose(CHECKS, [], {})) == ["always", "invariant"]
    assert names(choose(CHECKS, ["sync"], {})) == ["always", "never", "invariant"]
    assert names(choose(CHECKS, ["channels", "sync"], {})) == ["always", "never", "rarely", "invariant"]


def test_opting_out_takes_a_name_and_a_reason():
    assert choose(CHECKS, [], {"always": "not here"}) == ((always, "not here"), (invariant, ""))
    with pytest.raises(ConfigurationError, match=r"skip names 'alway', .*; did you mean always\?"):
        choose(CHECKS, [], {"alway": "not here"})
    with pytest.raises(ConfigurationError, match=r"'never', which is no check of this component; there are always"):
        choose(CHECKS, [], {"never": "this component has no such capability"})
    with pytest.raises(ConfigurationError, match=r"'always' without a reason"):
        choose(CHECKS, [], {"always": " "})


def test_a_violation_is_reported_with_its_rule():
    bench = Bench()
    result = run_check(never, lambda: bench, 10.0)
    assert (result.outcome, result.seen, result.right) == ("failed", "one", "two")
    assert str(result) == "failed never\n  rule:  It never holds.\n  seen:  one\n  right: two"
    assert bench.closed.wait(10)
    with pytest.raises(InvariantError, match="It never holds"):
        result.require()


def test_an_exception_is_reported_with_where_it_was_raised():
    result = run_check(rarely, Bench, 10.0)
    assert result.outcome == "failed"
    assert result.seen.startswith("AttributeError: 'Bench' object has no attribute 'no_such_attribute', raised at\n")
    assert "in rarely\n    bench.no_such_attribute()" in result.seen
    assert "checks.py" not in result.seen.replace("test_checks.py", "")


def test_other_broken_invariants_are_reported_as_they_are():
    assert run_check(invariant, Bench, 10.0).seen == "3 blocks are free of 2"


def test_what_hangs_is_reported_with_where_it_stands():
    released = threading.Event()

    @check("transport")
    def hangs(bench):
        """It ends."""
        released.wait()

    result = run_check(hangs, Bench, 0.2)
    released.set()
    assert result.outcome == "failed"
    assert result.seen.startswith("no end after 0.2 s; it stands at\n")
    assert "in hangs\n    released.wait()" in result.seen


def test_what_a_check_that_hangs_has_put_up_is_cleared_away():
    bench = Bench()

    @check("transport")
    def hangs(bench):
        """It ends."""
        bench.closed.wait()  # as a call does that waits for a process which only the bench can end

    assert run_check(hangs, lambda: bench, 0.2).outcome == "failed"
    assert bench.closed.is_set()


def test_a_bench_that_cannot_be_made_is_a_failure():
    def make():
        raise OSError("no room")

    assert run_check(always, make, 10.0).seen.startswith("OSError: no room, raised at")


def test_a_report_says_what_failed():
    report = Report("transport 'x'", (run_check(always, Bench, 10.0), run_check(never, Bench, 10.0)))
    assert str(report).startswith("transport 'x': 1 of 2 checks passed in 0.0 s\nfailed never\n")
    assert [result.check.name for result in report.failed] == ["never"]
    with pytest.raises(InvariantError, match="1 of 2 checks passed"):
        report.require()
    good = Report("transport 'x'", report.results[:1])
    assert good.require() is good
