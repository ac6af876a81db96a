"""Records are filled by the names of their fields."""

from dataclasses import dataclass

import pytest

from enginecore.assembly.records import fill
from enginecore.messages import Message


@dataclass(frozen=True)
class Low:
    size: int = 1
    colour: str = "red"


@dataclass(frozen=True, kw_only=True)
class Paint:
    size: int
    colour: str
    coats: int = 2


class Order(Message, kw_only=True):
    size: int
    colour: str = ""


def test_the_first_source_counts_and_values_count_more():
    assert fill(Paint, Low(size=3), Low(size=4)) == Paint(size=3, colour="red")
    assert fill(Paint, Low(), colour="blue", coats=1) == Paint(size=1, colour="blue", coats=1)
    assert fill(Order, Low(size=3)) == Order(size=3, colour="red")


def test_a_field_that_no_source_has_is_an_error_unless_it_has_a_default():
    with pytest.raises(TypeError, match="colour"):
        fill(Paint, size=1)
