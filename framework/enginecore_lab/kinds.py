"""The kinds of component of the lab: one row each. Experiment files choose among them, engine settings do not."""

from enginecore.plugin import KindSpec
from enginecore_lab.interfaces import ArrivalProcess, LengthDistribution, Metric, WorkloadLoader

WORKLOAD = KindSpec(
    name="workload",
    summary="Makes the requests of an experiment: reads a trace, or draws them. Tables with `kind`, as [workload].",
    interface=WorkloadLoader,
)

ARRIVALS = KindSpec(
    name="arrivals",
    summary="Draws when requests arrive. Tables with `kind`, as `arrivals` of a workload.",
    interface=ArrivalProcess,
)

LENGTHS = KindSpec(
    name="lengths",
    summary="Draws numbers of tokens. Tables with `kind`, as `prompt` and `output` of a workload.",
    interface=LengthDistribution,
)

METRIC = KindSpec(
    name="metric",
    summary="One figure of a run, by which configurations are compared.",
    interface=Metric,
)

LAB_KINDS = (WORKLOAD, ARRIVALS, LENGTHS, METRIC)
"""In the order in which they are listed to users."""
