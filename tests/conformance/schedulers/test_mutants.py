"""A scheduler with one bug fails the check that is there for this bug."""

import pytest

from enginecore_conformance import prepare
from enginecore_conformance.schedulers import CHECKS, rules
from tests.conformance.schedulers.mutants import MUTANTS

PLAYED = {each.name for each in rules.CHECKS}
"""Those that traces are played for; a few of them run in the default set, with all that are staged."""
SAMPLES = ("budget_is_kept", "policy_does_not_change_tokens-2")


def cases():
    slow = [name for name in MUTANTS if name.partition("-")[0] in PLAYED and name not in SAMPLES]
    return [pytest.param(name, marks=[pytest.mark.full] if name in slow else []) for name in MUTANTS]


@pytest.mark.parametrize("name", cases())
def test_the_bug_is_caught(name):
    [check] = prepare(MUTANTS[name], only=[name.partition("-")[0]])
    result = check.run()
    assert result.outcome == "failed", result
    assert result.seen
    assert result.right


def test_every_check_is_one_that_some_bug_fails():
    caught = {name.partition("-")[0] for name in MUTANTS}
    # the first is a net for what has no name; the second has a test of its own
    assert {item.name for item in CHECKS} - caught == {"nothing_else_breaks", "importing_it_is_light"}
