"""Toolkit for simulated executors: what a step costs, and how a real one's log is fitted."""

from enginecore_simulation.costs import CostModel, StepCosts
from enginecore_simulation.deployment import Deployment
from enginecore_simulation.features import StepFeatures, StepTracker, TrackedStep
from enginecore_simulation.hardware import HARDWARE, Efficiency, Hardware
from enginecore_simulation.pipeline import Pipeline
from enginecore_simulation.presets import PRESETS
from enginecore_simulation.shapes import ModelShape, close_presets, find_shape

__all__ = [
    "HARDWARE",
    "PRESETS",
    "CostModel",
    "Deployment",
    "Efficiency",
    "Hardware",
    "ModelShape",
    "Pipeline",
    "StepCosts",
    "StepFeatures",
    "StepTracker",
    "TrackedStep",
    "close_presets",
    "find_shape",
]
