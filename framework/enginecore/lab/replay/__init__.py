"""Replay: one workload on one configuration, in virtual or in real time."""

from enginecore.lab.replay.alone import time_alone
from enginecore.lab.replay.replay import replay

__all__ = ["replay", "time_alone"]
