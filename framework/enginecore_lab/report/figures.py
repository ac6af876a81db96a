"""A picture of the report: a plotly figure with its place, its title and its caption on the page."""

import html
import math
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from enginecore_lab.report.palette import LIGHT, with_variables
from enginecore_lab.report.series import Floats
from enginecore_lab.text import quantity


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture.

    Attributes:
        id: The id of its place on the page, unique there.
        title: Plain text above it.
        caption: Plain text below it: what it shows and how that was counted.
        height: CSS pixels.
        figure: The figure, in the colours of the light scheme.
    """

    id: str
    title: str
    caption: str
    height: int
    figure: go.Figure

    def for_page(self) -> dict[str, Any]:
        """Data and layout as plain values, with the page's variables as colours and without a template."""
        values = self.figure.to_plotly_json()
        values["layout"].pop("template", None)
        return {"data": with_variables(values["data"]), "layout": with_variables(values["layout"])}


def new_figure(*traces: go.Scatter | go.Bar) -> go.Figure:
    """A figure without plotly's default template, for the page has its own."""
    return go.Figure(traces, layout={"template": "none"})


def plain(text: str) -> str:
    """A name as plotly shall show it: to the letter, never as markup."""
    return html.escape(text, quote=False)


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with its title."""
    return {"title": {"text": title}, "automargin": True, **more}


def time_unit(end: float) -> tuple[float, str]:
    """Divisor of seconds on a time axis up to this end, and the unit's name."""
    if end >= 7200:
        return 3600.0, "h"
    return (60.0, "min") if end >= 300 else (1.0, "s")


def add_row_label(figure: go.Figure, text: str, row: float) -> None:
    """Add a label above a row of bars or intervals: beside it there is no room on a phone."""
    figure.add_annotation(
        text=text,
        x=0,
        xref="paper",
        xanchor="left",
        y=row,
        yanchor="bottom",
        yshift=7,
        showarrow=False,
        align="left",
        bgcolor=LIGHT["panel"],
        borderpad=0,
    )


def rows_axis(count: int) -> dict[str, Any]:
    """The axis of rows that carry their own labels, the first row on top."""
    return {"visible": False, "range": [count - 0.6, -0.9], "fixedrange": True}


def log_ticks(low: float, high: float, unit: str) -> dict[str, Any]:
    """A logarithmic axis of seconds or a count, whose ticks are written with their unit.

    Args:
        low: The smallest value shown, above 0.
        high: The largest.
        unit: Unit of the values.
    """
    first, last = math.log10(low), math.log10(high)
    steps = (1, 2, 5) if last - first < 1.3 else (1, 3) if last - first < 2.4 else (1,)
    exponents = range(math.floor(first), math.ceil(last) + 1)
    values = [step * 10.0**exponent for exponent in exponents for step in steps]
    return {
        "type": "log",
        "range": [first, last],
        "tickangle": 0,
        "tickvals": values,
        "ticktext": [quantity(value, unit) for value in values],
    }


def spans_decades(values: Floats, factor: float = 10.0) -> bool:
    """Whether positive values differ so much that only a logarithmic axis shows them all."""
    positive = values[values > 0]
    return len(positive) > 0 and bool(positive.max() > factor * positive.min())
