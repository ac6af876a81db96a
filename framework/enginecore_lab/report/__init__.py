"""Reports of a comparison: a table in the terminal, and one self-contained page."""

from collections.abc import Mapping
from pathlib import Path

from enginecore_lab.comparison import Comparison
from enginecore_lab.extras import require
from enginecore_lab.report.terminal import print_comparison
from enginecore_lab.run import Run

__all__ = ["print_comparison", "require_plots", "write_html"]


def require_plots() -> None:
    """Check that pages can be made.

    Raises:
        ConfigurationError: plotly is not installed.
    """
    require("plotly")


def write_html(comparison: Comparison, runs: Mapping[str, Run], path: Path) -> None:
    """Write the report of a comparison as one page.

    Args:
        comparison: The comparison.
        runs: By name of arm, one representative run each, all of the same workload. An arm without a run has no
            pictures over time.
        path: The file; replaced if it exists.

    Raises:
        ConfigurationError: plotly is not installed.
        ValueError: a run belongs to no arm, or the runs are of different workloads.
    """
    require_plots()
    from enginecore_lab.report.page import render  # only here: it imports plotly

    path.write_text(render(comparison, runs), encoding="utf-8")
