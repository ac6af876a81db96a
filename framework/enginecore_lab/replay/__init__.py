"""Replay: one workload on one configuration, in virtual or in real time."""

from enginecore_lab.replay.alone import time_alone
from enginecore_lab.replay.replay import replay

__all__ = ["replay", "time_alone"]
