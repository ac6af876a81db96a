"""Toolkit for simulated executors: what a step costs, and how a real one's log is fitted."""

from enginecore.cost_model.costs import CostModel, StepCosts
from enginecore.cost_model.deployment import Deployment
from enginecore.cost_model.features import StepFeatures, StepTracker, TrackedStep
from enginecore.cost_model.hardware import HARDWARE, Efficiency, Hardware
from enginecore.cost_model.pipeline import Pipeline
from enginecore.cost_model.presets import PRESETS
from enginecore.cost_model.shapes import ModelShape, close_presets, find_shape

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
