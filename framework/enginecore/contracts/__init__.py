"""Contracts of components: proxies that check every call against them, and the judge of plans.

For `debug.check_components` and `debug.check_invariants`, and for the conformance kits, so that all know the same
rules. A rule that is broken is a `BrokenRule`, raised out of the call in which it is seen.
"""

from enginecore.contracts.broken import BrokenRule
from enginecore.contracts.invariants import CheckedScheduler
from enginecore.contracts.kv_cache import WatchedKVCacheManager
from enginecore.contracts.plans import KnownRequest, PlanJudge, PlanLimits
from enginecore.contracts.scheduler import WatchedScheduler

__all__ = [
    "BrokenRule",
    "CheckedScheduler",
    "KnownRequest",
    "PlanJudge",
    "PlanLimits",
    "WatchedKVCacheManager",
    "WatchedScheduler",
]
