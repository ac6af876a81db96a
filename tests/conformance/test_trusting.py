"""The oracle without reading back: the same tokens, and no eye for faults."""

import pytest
from pydantic import ValidationError

from enginecore_conformance.oracle.settings import OracleSettings
from tests.equivalence.engines import OracleEngine
from tests.equivalence.test_grid import grid_settings, make_requests


@pytest.mark.parametrize("pool", ["roomy", "tight"])
@pytest.mark.parametrize(("depth", "feeds_tokens"), [(1, False), (2, True)])
def test_it_gives_the_tokens_of_the_model(pool, depth, feeds_tokens):
    oracle = {"verify": False, "read_back": False, "depth": depth, "feeds_tokens": feeds_tokens}
    engine = OracleEngine(oracle=oracle, **grid_settings("chunk16", 8, True, pool))
    engine.add(*make_requests(8))
    engine.run()
    assert (engine.stats.num_preemptions > 0) == (pool == "tight")
    assert engine.num_cached_tokens > 0


def test_it_cannot_verify():
    with pytest.raises(ValidationError, match="read_back = false needs verify = false"):
        OracleSettings(read_back=False)
