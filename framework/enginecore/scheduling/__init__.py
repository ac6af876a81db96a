"""Toolkit for schedulers: continuous batching, and the base class of scheduling policies."""

from enginecore.scheduling.component import policy_component
from enginecore.scheduling.continuous_batching import ContinuousBatchingScheduler
from enginecore.scheduling.policy import (
    Delay,
    Rank,
    RequestView,
    SchedulerView,
    SchedulingPolicy,
    Split,
    WaitingView,
    WorstRank,
)

__all__ = [
    "ContinuousBatchingScheduler",
    "Delay",
    "Rank",
    "RequestView",
    "SchedulerView",
    "SchedulingPolicy",
    "Split",
    "WaitingView",
    "WorstRank",
    "policy_component",
]
