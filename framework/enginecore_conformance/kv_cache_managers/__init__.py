"""Kit for KV cache managers.

Every call of every run is under the watch that `debug.check_components` puts on, and beside a plain
model of what may be hit and what must be. Random traces, drawn by Hypothesis, are played once for
all rules; a trace that breaks one is made as small as possible and printed as a test. The other
checks each stage what they are about.
"""

from typing import Any

from enginecore_conformance.checks import Check, checks_of
from enginecore_conformance.kv_cache_managers import rules, stages
from enginecore_conformance.kv_cache_managers.bench import KVCacheBench
from enginecore_conformance.kv_cache_managers.run import KVCacheRun
from enginecore_conformance.schedulers.knobs import kit_with_knobs

__all__ = ["CHECKS", "KIT", "KVCacheRun"]

CHECKS: tuple[Check[Any], ...] = (*rules.CHECKS, *checks_of(stages))
"""All checks of KV cache managers. A component has one more for each of its own settings."""


KIT = kit_with_knobs(CHECKS, KVCacheBench)
