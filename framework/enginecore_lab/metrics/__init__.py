"""Metrics of a run, and whether the run was one of an overloaded engine."""

from enginecore_lab.interfaces import Alone, MetricRefused, Slo, TooFewRequests
from enginecore_lab.metrics.load import Load, is_saturated, load_of
from enginecore_lab.metrics.view import RunView, Window

__all__ = [
    "Alone",
    "Load",
    "MetricRefused",
    "RunView",
    "Slo",
    "TooFewRequests",
    "Window",
    "is_saturated",
    "load_of",
]
