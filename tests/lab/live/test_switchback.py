"""Blocks of time, and whose they are."""

import subprocess
import sys

import pytest

from enginecore_lab.live.switchback import Switchback


def test_each_pair_has_one_block_of_each_arm_in_an_order_by_lot():
    arms = [Switchback(60, 10, seed=3).arm_of(n) for n in range(400)]
    pairs = list(zip(arms[::2], arms[1::2], strict=True))
    assert set(pairs) == {(0, 1), (1, 0)}
    assert 70 < pairs.count((0, 1)) < 130
    assert arms != [Switchback(60, 10, seed=4).arm_of(n) for n in range(400)]


def test_a_moment_falls_into_a_block_and_its_burn_in():
    switchback = Switchback(60, 10)
    assert [switchback.at(t)[::2] for t in (0, 9.9, 10, 59.9, 60, 130)] == [
        (0, True),
        (0, True),
        (0, False),
        (0, False),
        (1, True),
        (2, False),
    ]
    assert switchback.at(130).pair == 1
    assert switchback.at(130).arm == switchback.arm_of(2)


def test_the_order_is_the_same_in_every_process():
    code = "from enginecore_lab.live import Switchback; print([Switchback(1, 0, 5).arm_of(n) for n in range(64)])"
    here = [Switchback(1, 0, 5).arm_of(n) for n in range(64)]
    there = subprocess.run(
        [sys.executable, "-c", code], env={**__import__("os").environ, "PYTHONHASHSEED": "77"}, capture_output=True
    )
    assert there.stdout.decode().strip() == str(here)


@pytest.mark.parametrize(("block", "burn_in"), [(10, 10), (10, -1), (0, 0)])
def test_lengths_that_make_no_sense(block, burn_in):
    with pytest.raises(ValueError, match="burn_in_seconds must be"):
        Switchback(block, burn_in)
