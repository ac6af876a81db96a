"""A comparison in the terminal."""

import io

import pytest
from rich.console import Console

from enginecore_lab import text
from enginecore_lab.report import print_comparison
from tests.lab.report.example import make_comparison


def printed(comparison, width):
    file = io.StringIO()
    print_comparison(comparison, Console(file=file, width=width, force_terminal=False))
    return file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 100, 160])
def test_the_verdict_comes_first_and_nothing_is_lost(width):
    comparison = make_comparison(warnings=["Be careful."])
    shown = printed(comparison, width)
    assert " ".join(shown.split()).startswith(comparison.sentence)
    assert max(map(len, shown.splitlines())) <= width
    for metric in (comparison.comparisons[0].primary, *comparison.comparisons[0].secondary):
        assert metric.metric[:12] in shown
        assert text.verdict(metric) in shown
    for cell in ("392 ms", "322 ms", "-18.0 % (-21.0 to -15.0)", "2,159 tokens/s", "warning: Be careful."):
        assert cell in " ".join(shown.split())


def test_the_usual_terminal_has_one_row_per_metric_and_no_number_is_cut():
    arm = make_comparison().comparisons[0]
    lines = printed(make_comparison(), 80).splitlines()
    for metric in (arm.primary, *arm.secondary):
        (line,) = [line for line in lines if text.verdict(metric) in line and text.short_estimate(metric) in line]
        assert line.startswith(metric.metric[:12])
    assert "…" not in "".join(lines)


def test_every_arm_has_its_table():
    shown = printed(make_comparison(("fcfs", "sjf", "lottery")), 120)
    assert "sjf against fcfs" in shown
    assert "lottery against fcfs" in shown


def test_names_are_not_markup():
    comparison = make_comparison(("[red]fcfs[/]", "[/bad]"), warnings=["[bold]loud[/]"])
    shown = printed(comparison, 120)
    assert "[/bad] against [red]fcfs[/]" in shown
    assert "[bold]loud[/]" in shown
