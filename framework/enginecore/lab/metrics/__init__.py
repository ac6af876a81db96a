"""Metrics of a run, each by one name and one definition, and whether the run was one of an overloaded engine."""

from enginecore.lab.metrics.catalogue import METRICS
from enginecore.lab.metrics.load import Load, is_saturated, load_of
from enginecore.lab.metrics.terms import Alone, Metric, MetricRefused, Slo, TooFewRequests, Window

__all__ = [
    "METRICS",
    "Alone",
    "Load",
    "Metric",
    "MetricRefused",
    "Slo",
    "TooFewRequests",
    "Window",
    "is_saturated",
    "load_of",
]
