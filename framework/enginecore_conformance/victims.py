"""Kit for victim choices, run under a scheduler in a tight pool."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from enginecore.interfaces import RequestView, SchedulerView, VictimChoice
from enginecore.plugin import VictimContext
from enginecore_conformance.checks import Check, Violation, check, checks_of
from enginecore_conformance.schedulers import repetition
from enginecore_conformance.schedulers.bench import SchedulerBench
from enginecore_conformance.schedulers.knobs import kit_with_knobs
from enginecore_conformance.schedulers.traffic import busy_moves
from enginecore_conformance.weight import require_light_import

__all__ = ["CHECKS", "KIT"]


class _Overheard(VictimChoice):
    """Passes a choice on, and checks it."""

    def __init__(self, choice: VictimChoice) -> None:
        self.num_named = 0
        self._choice = choice

    def choose(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView, /
    ) -> RequestView | None:
        before = list(candidates)
        named = self._choice.choose(candidates, needy, scheduler)
        ids = [candidate.request_id for candidate in before]
        if list(candidates) != before:
            raise Violation("it changed the list of candidates", "it reads")
        if named is not None and named not in before:
            raise Violation(f"of {ids} it named {named!r}", "one of the candidates, or None")
        if named != self._choice.choose(list(before), needy, scheduler):
            raise Violation(f"asked twice of {ids}, it named two", "the same: it keeps no books")
        self.num_named += named is not None
        return named


@check("victim")
def it_names_a_candidate(bench: SchedulerBench) -> None:
    """`choose` names one of its candidates, or None, and the same one if it is asked again; it
    changes nothing. In a tight pool it names one.
    """
    num_named = 0
    for seed in range(6):
        make = bench.parts.make_victim
        if make is None:
            raise Violation("the scheduler beside it asks no victim component", "one that declares 'victim'")
        heard = _Overheard(make(VictimContext(max_num_seqs=4, seed=0)))
        run = bench.start(bench.parts.with_victim(heard), num_blocks=10, max_num_seqs=4, max_num_batched_tokens=24,
                          max_model_len=48)  # fmt: skip
        for move in busy_moves(seed, 10, cancels=0.0):
            getattr(run, move.method)(*move.args, **move.kwargs)
        run.finish()
        num_named += heard.num_named
    if not num_named:
        raise Violation("60 requests in a pool of 10 blocks, and it named none", "one of the candidates")


@check("victim")
def schedulers_keep_their_contract_behind_it(bench: SchedulerBench) -> None:
    """Whatever it names, the scheduler that asks keeps all rules: tokens are right, everything
    ends.
    """
    for rule in bench.broken_rules():
        bench.require_kept(rule)


@check("victim")
def importing_it_is_light(bench: SchedulerBench) -> None:
    """Importing the plugin's module pulls in no model library and takes little time."""
    require_light_import(bench.subject)


CHECKS: tuple[Check[Any], ...] = (
    it_names_a_candidate,
    schedulers_keep_their_contract_behind_it,
    importing_it_is_light,
    *(replace(item, kind="victim") for item in checks_of(repetition)),
)
"""All checks of victim choices. A component has one more for each of its own settings."""


KIT = kit_with_knobs(CHECKS, SchedulerBench)
