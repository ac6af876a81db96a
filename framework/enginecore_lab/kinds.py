"""The kinds of component of the lab: one row each. Experiment files choose among them, engine settings do not."""

from enginecore.plugin import KindSpec
from enginecore_lab.interfaces import ArrivalProcess, LengthDistribution, Metric, WorkloadLoader

WORKLOAD = KindSpec(
    name="workload",
    summary="Reads the requests of an experiment from a trace, or draws them.",
    interface=WorkloadLoader,
)

ARRIVALS = KindSpec(
    name="arrivals",
    summary="Draws arrival times: `arrivals` of a workload.",
    interface=ArrivalProcess,
)

LENGTHS = KindSpec(
    name="lengths",
    summary="Draws token counts: `prompt` and `output` of a workload.",
    interface=LengthDistribution,
)

METRIC = KindSpec(
    name="metric",
    summary="Measures a run; experiments compare configurations by it.",
    interface=Metric,
)

LAB_KINDS = (WORKLOAD, ARRIVALS, LENGTHS, METRIC)
"""In the order in which they are listed to users."""
