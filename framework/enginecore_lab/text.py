"""Text for numbers, differences and verdicts, in the terminal and on the page."""

import math
from collections.abc import Sequence
from statistics import fmean

from enginecore_lab.comparison import Interval, MetricComparison


def number(value: float) -> str:
    """Three significant digits, or all digits before the point."""
    if not math.isfinite(value):
        return "n/a" if math.isnan(value) else "infinite" if value > 0 else "-infinite"
    if abs(value) >= 999.5 or value == int(value):
        return f"{round(value):,}"
    return f"{value:#.3g}".rstrip(".")


def quantity(value: float, unit: str) -> str:
    """A number with its unit; seconds below one as milliseconds, and rates without the one. Infinity has no unit."""
    if not math.isfinite(value):
        return number(value)
    if unit == "s" and 0 < abs(value) < 1:
        return f"{number(value * 1000)} ms"
    if unit.startswith("1/"):
        return f"{number(value)}{unit[1:]}"
    return f"{number(value)} {unit}".rstrip()


def percent(share: float) -> str:
    """A signed percentage with as many decimals as help: +12 %, -3.4 %, +0.05 %."""
    if not math.isfinite(share):
        return "n/a"
    size = abs(share) * 100
    decimals = 0 if size >= 99.5 else 1 if size >= 1 else 2
    text = f"{share * 100:+,.{decimals}f} %"
    return "0 %" if float(text[:-2].replace(",", "")) == 0 else text


def relative_interval(metric: MetricComparison) -> tuple[float, float] | None:
    """The interval as shares of the baseline's mean; None where there is none, or nothing to divide by."""
    if metric.relative_interval is not None:
        return metric.relative_interval.low, metric.relative_interval.high
    scale = baseline_scale(metric)
    if metric.interval is None or scale is None:
        return None
    return metric.interval.low / scale, metric.interval.high / scale


def relative_margin(metric: MetricComparison) -> float | None:
    """The margin as a share of the baseline's mean; None where there is nothing to divide by."""
    scale = baseline_scale(metric)
    return None if scale is None else metric.margin / scale


def baseline_scale(metric: MetricComparison) -> float | None:
    """Size of the baseline's mean, to express differences in; None where it is 0 or no number."""
    size = abs(mean(metric.baseline))
    return size if size > 0 and math.isfinite(size) else None


def mean(values: list[float]) -> float:
    """The mean over all replicates; nan of none."""
    return fmean(values) if values else math.nan


def difference(metric: MetricComparison) -> str:
    """The estimate: relative where that means something, else in the metric's unit."""
    if baseline_scale(metric) is None or not math.isfinite(metric.relative):
        return quantity(metric.difference, metric.unit)
    return percent(metric.relative)


def interval(metric: MetricComparison) -> str:
    """The interval in the terms of `difference`; "none" where a verdict was refused."""
    if metric.interval is None:
        return "none"
    relative = relative_interval(metric)
    if relative is None:
        return f"{quantity(metric.interval.low, metric.unit)} to {quantity(metric.interval.high, metric.unit)}"
    return f"{percent(relative[0])} to {percent(relative[1])}"


def estimate(metric: MetricComparison) -> str:
    """The difference with its interval in full: "-0.3 % (95 % CI -0.8 to +0.2)"."""
    if metric.interval is None:
        return difference(metric)
    value, low, high, unit = _figures(metric, metric.interval)
    over = ", one workload" if len(metric.baseline) == 1 else ""
    return f"{value}{unit} ({level(metric.interval)} CI {low} to {high}{over})"


def short_estimate(metric: MetricComparison) -> str:
    """The difference with its interval for a table: "-0.3 % (-0.8 to +0.2)"."""
    if metric.interval is None:
        return difference(metric)
    value, low, high, unit = _figures(metric, metric.interval)
    return f"{value}{unit} ({low} to {high})"


def _figures(metric: MetricComparison, interval: Interval) -> tuple[str, str, str, str]:
    """Estimate, both ends of the interval, and their common unit with a space where it needs one."""
    relative = relative_interval(metric)
    if relative is not None and math.isfinite(metric.relative):
        value, low, high = _signed([100 * each for each in (metric.relative, *relative)])
        return value, low, high, " %"
    values, unit = [metric.difference, interval.low, interval.high], metric.unit
    if unit == "s" and 0 < max(map(abs, values)) < 1:
        values, unit = [1000 * each for each in values], "ms"
    value, low, high = _signed(values)
    return value, low, high, unit[1:] if unit.startswith("1/") else f" {unit}".rstrip()


def _signed(values: Sequence[float]) -> list[str]:
    """An estimate and the ends of its interval, with as many decimals as the interval's width bears out."""
    _, low, high = values
    half = (high - low) / 2
    largest = max(map(abs, values))
    decimals = 1
    if math.isfinite(largest):
        decimals = 0 if largest >= 99.5 else min(max(math.ceil(-math.log10(half)), 1), 4) if half > 0 else 1
    return [_without_negative_zero(f"{each:+,.{decimals}f}") for each in values]


def _without_negative_zero(text: str) -> str:
    return text[1:] if not text.strip("+-0.") else text


def verdict(metric: MetricComparison) -> str:
    """The verdict in a word for people."""
    return "inconclusive" if metric.verdict == "undecided" else metric.verdict


def level(interval: Interval) -> str:
    """The confidence level of an interval: 95 %, 97.5 %."""
    return f"{interval.level * 100:.4g} %"


def p_value(metric: MetricComparison) -> str:
    """The p value; a dash where there is none."""
    if metric.p_value is None:
        return "-"
    return "< 0.001" if metric.p_value < 0.001 else f"{metric.p_value:.3f}"


def pairs(replicates: int) -> str:
    """The number of replicates in words."""
    return "1 pair" if replicates == 1 else f"{replicates:,} pairs"


def better_way(metric: MetricComparison) -> str:
    """Which way is better, in words."""
    return f"{metric.direction} is better"


def margin(metric: MetricComparison) -> str:
    """The margin in the terms of `difference`."""
    relative = relative_margin(metric)
    return quantity(metric.margin, metric.unit) if relative is None else f"{100 * relative:.3g} %"
