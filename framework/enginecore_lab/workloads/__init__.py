"""Workloads: published traces and drawn ones, and the engine requests made from them."""

from enginecore_lab.streams import Streams
from enginecore_lab.workloads.choice import AnyWorkload, WorkloadChoice, read_workload
from enginecore_lab.workloads.content import longest_output, to_engine_request
from enginecore_lab.workloads.digest import workload_hash
from enginecore_lab.workloads.traces import TraceWorkload

__all__ = [
    "AnyWorkload",
    "Streams",
    "TraceWorkload",
    "WorkloadChoice",
    "longest_output",
    "read_workload",
    "to_engine_request",
    "workload_hash",
]
