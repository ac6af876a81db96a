"""A picture of the page: plotly's data and layout as plain values, without colours of its own.

Colours are names of variables of the page's style sheet, written `var(--name)`; the page's script puts in what they
stand for, light or dark.
"""

import html
import math
from dataclasses import dataclass
from typing import Any

from enginecore_lab.report.series import Floats
from enginecore_lab.report.text import quantity

Trace = dict[str, Any]
Layout = dict[str, Any]

NUM_ARM_COLOURS = 6
NUM_TENANT_COLOURS = 8


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture.

    Attributes:
        id: Of its place on the page, unique there.
        title: Above it; plain text.
        caption: Below it, what is to be seen and how it was counted; plain text.
        height: In CSS pixels.
        data: Plotly's traces.
        layout: Plotly's layout.
    """

    id: str
    title: str
    caption: str
    height: int
    data: list[Trace]
    layout: Layout


def plain(text: str) -> str:
    """A name as plotly shall show it: to the letter, never as markup."""
    return html.escape(text, quote=False)


def arm_colour(index: int) -> str:
    """Of an arm, by its place in the experiment."""
    return f"var(--arm-{index % NUM_ARM_COLOURS})"


def tenant_colour(index: int) -> str:
    """Of a tenant, by its place among those shown."""
    return f"var(--tenant-{index % NUM_TENANT_COLOURS})"


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with its title."""
    return {"title": {"text": title}, "automargin": True, **more}


def time_unit(end: float) -> tuple[float, str]:
    """What to divide seconds by on a time axis up to this end, and the unit's name."""
    if end >= 7200:
        return 3600.0, "h"
    return (60.0, "min") if end >= 300 else (1.0, "s")


def row_label(text: str, row: float) -> dict[str, Any]:
    """A label above a row of bars or intervals: beside it there is no room on a phone."""
    return {
        "text": text,
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": row,
        "yanchor": "bottom",
        "yshift": 7,
        "showarrow": False,
        "align": "left",
        "bgcolor": "var(--panel)",
        "borderpad": 0,
    }


def rows_axis(count: int) -> dict[str, Any]:
    """The axis of rows that carry their own labels, the first row on top."""
    return {"visible": False, "range": [count - 0.6, -0.9], "fixedrange": True}


def log_ticks(low: float, high: float, unit: str) -> dict[str, Any]:
    """A logarithmic axis of seconds or a count, whose ticks are written with their unit.

    Args:
        low: The smallest value shown, above 0.
        high: The largest.
        unit: Of the values.
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
