"""Helpers for candidates for a victim, which stand in order of rank, worst last."""

from operator import attrgetter

rank_of = attrgetter("rank")

WORST = 64
"""How many of the worst are looked at where looking at all would take too long."""
