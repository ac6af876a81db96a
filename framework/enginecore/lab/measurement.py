"""What is kept of a run when its requests and steps are forgotten."""

from typing import Any

import msgspec

from enginecore.lab.workload import Loop


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One arm's run of one replicate, in numbers. Small, so that it goes from process to process.

    Attributes:
        values: By metric.
        refused: Metrics without a value, and why.
        saturated: Whether the queue only grew.
        num_requests: That were asked.
        num_failed: That did not get all that they asked for: failed, aborted or unfinished. They count in all metrics.
        fingerprint: Of all that happened, moment by moment: two runs with the same one are the same.
        workload_hash: SHA-256 of what was asked.
        workload: Its name.
        loop: How requests came.
        info: What was in force, as plain values.
        settings: The arm's complete settings, as plain values.
        virtual: Whether time was simulated.
        windows: Of a comparison on one workload only: values in windows of it, one after another, by metric.
    """

    values: dict[str, float]
    refused: dict[str, str]
    saturated: bool
    num_requests: int
    num_failed: int
    fingerprint: str
    workload_hash: str
    workload: str
    loop: Loop
    info: dict[str, Any]
    settings: dict[str, Any]
    virtual: bool
    windows: dict[str, list[float]] = {}
