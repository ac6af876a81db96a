"""Live A/B: two engine cores of different settings behind one AsyncLLM, judged while they serve.

Requests are never randomised inside one engine: they would share its queue and its blocks, and one arm's gain would be
the other's loss. Each arm has an engine core of its own, and time decides which one new requests go to (a switchback).
"""

from enginecore_lab.live.experiment import LiveExperiment
from enginecore_lab.live.reports import LiveReport
from enginecore_lab.live.sequential import SequentialTest
from enginecore_lab.live.settings import LiveSettings
from enginecore_lab.live.switchback import Block, Switchback

__all__ = ["Block", "LiveExperiment", "LiveReport", "LiveSettings", "SequentialTest", "Switchback"]
