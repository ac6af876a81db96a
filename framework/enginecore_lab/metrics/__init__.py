"""Metrics of a run, each by one name and one definition, and whether the run was one of an overloaded engine."""

from enginecore_lab.metrics.catalogue import METRICS
from enginecore_lab.metrics.load import Load, is_saturated, load_of
from enginecore_lab.metrics.terms import Alone, Metric, MetricRefused, Slo, TooFewRequests, Window

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
