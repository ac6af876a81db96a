"""An executor with one bug fails the check that is there for this bug; the same one without it passes all."""

import pytest

from enginecore_conformance import parametrize, prepare
from tests.conformance.executors.mutants import MUTANTS, PLAIN, PLAIN_DYING


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_bug_is_caught(mutant):
    limits = {"patience": mutant.patience, "time_limit": 20 * mutant.patience}
    [check] = prepare(MUTANTS[mutant], only=[mutant.caught_by], **limits)
    result = check.run()
    assert result.outcome == "failed", result
    assert result.seen
    assert result.right


@parametrize(PLAIN)
def test_without_a_bug(check):
    check()


@parametrize(PLAIN_DYING)
def test_without_a_bug_that_dies_of_a_failed_step(check):
    check()
