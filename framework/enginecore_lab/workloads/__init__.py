"""Workloads: published traces and drawn ones, and what an engine is sent for each of their requests."""

from enginecore_lab.workloads.content import longest_output, to_engine_request
from enginecore_lab.workloads.digest import workload_hash
from enginecore_lab.workloads.settings import WorkloadSettings, workload_settings
from enginecore_lab.workloads.settings_base import AnyWorkload
from enginecore_lab.workloads.streams import Streams

__all__ = [
    "AnyWorkload",
    "Streams",
    "WorkloadSettings",
    "longest_output",
    "to_engine_request",
    "workload_hash",
    "workload_settings",
]
