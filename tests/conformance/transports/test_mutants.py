"""A transport with one bug fails the check that is there for this bug; the same one without it passes all."""

import pytest

from enginecore_conformance import prepare
from enginecore_conformance.transports import CHANNEL_CHECKS
from tests.conformance.transports.mutants import MUTANTS, PLAIN

# what a mutant leaves open is its own affair
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_bug_is_caught(mutant):
    patience, time_limit = mutant.limits
    [check] = prepare(MUTANTS[mutant], only=[mutant.caught_by], patience=patience, time_limit=time_limit)
    result = check.run()
    assert result.outcome == "failed", result
    assert result.seen
    assert result.right


@pytest.mark.full
@pytest.mark.parametrize("check", [item for item in prepare(PLAIN) if item.check in CHANNEL_CHECKS], ids=str)
def test_without_a_bug(check):
    check()
