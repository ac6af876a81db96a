"""Components that stand before another one hand on every member, those with a default included."""

import pytest

from enginecore.contracts import WatchedKVCacheManager, WatchedScheduler
from enginecore.interfaces import Executor, KVCacheManager, Scheduler
from enginecore.registry.overrides import interface_members
from enginecore_lab.recording import RecordingExecutor


@pytest.mark.parametrize(
    ("proxy", "interface"),
    [(WatchedKVCacheManager, KVCacheManager), (WatchedScheduler, Scheduler), (RecordingExecutor, Executor)],
)
def test_no_member_is_left_to_its_default(proxy, interface):
    left = [name for name, member in interface_members(interface).items() if getattr(proxy, name) is member]
    assert left == []
