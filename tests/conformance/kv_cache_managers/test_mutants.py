"""A KV cache manager with one bug fails the check that is there for this bug."""

import pytest

from enginecore_conformance import prepare
from enginecore_conformance.kv_cache_managers import CHECKS
from tests.conformance.kv_cache_managers.mutants import MUTANTS

STAGED = ("full_hits", "lookups_are_counted", "identities", "double_frees", "ids_do_not", "the_eviction")
"""Those that take no time run in the default set."""


def cases():
    quick = tuple(name for name in MUTANTS if name.startswith(STAGED))
    return [pytest.param(name, marks=[] if name in quick else [pytest.mark.full]) for name in MUTANTS]


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
