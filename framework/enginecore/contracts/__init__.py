"""Components under watch: proxies that pass every call on and look at what is asked and what comes of it.

For `debug.check_components`, and for the conformance kit, so that both know the same rules. A rule that is broken is a
`BrokenRule`, raised out of the call in which it is seen.
"""

from enginecore.contracts.broken import BrokenRule
from enginecore.contracts.kv_cache import WatchedKVCacheManager
from enginecore.contracts.scheduler import WatchedScheduler

__all__ = ["BrokenRule", "WatchedKVCacheManager", "WatchedScheduler"]
