"""Reports of a live experiment, at any time."""

from typing import Literal

import msgspec

from enginecore_lab.live.ledger import ArmTally

State = Literal["pilot", "running", "decided", "reverted", "undecided"]


class ArmReport(msgspec.Struct, frozen=True, kw_only=True):
    """One arm so far, outside burn-ins. Means are in seconds, NaN without requests."""

    completed: int
    failed: int
    aborted: int
    ttft: float
    tpot: float
    e2e: float
    attainment: float


class LiveReport(msgspec.Struct, frozen=True, kw_only=True):
    """State of a live experiment.

    Attributes:
        state: "pilot", "running", "decided", "reverted" or "undecided".
        sentence: The same for people, with the reason.
        num_pairs: Pairs of blocks that count.
        skipped_pairs: Pairs with a block without requests.
        difference: Mean of candidate - baseline over the pairs, in seconds.
        half_width: Half width of the confidence sequence around it; infinite with few pairs.
        e_value: Evidence against "no difference"; decided at 1 / alpha.
        p_value: Valid however often it is looked at.
        sd: Standard deviation of a difference without effect; NaN during the pilot.
        arms: Baseline, candidate.
    """

    state: State
    sentence: str
    num_pairs: int
    skipped_pairs: int
    difference: float
    half_width: float
    e_value: float
    p_value: float
    sd: float
    arms: tuple[ArmReport, ArmReport]


def arm_report(tally: ArmTally) -> ArmReport:
    """One arm, by what was measured of it."""
    return ArmReport(
        completed=len(tally.values["e2e"]),
        failed=tally.failed,
        aborted=tally.aborted,
        ttft=tally.mean("ttft"),
        tpot=tally.mean("tpot"),
        e2e=tally.mean("e2e"),
        attainment=tally.attainment,
    )
