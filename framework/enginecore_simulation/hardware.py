"""Accelerators by their data sheets, and the share of it that a model reaches."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from enginecore.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Hardware:
    """One card.

    Attributes:
        flops: Operations of dense 16-bit arithmetic per second.
        bandwidth: Memory bandwidth, bytes per second.
        memory: Bytes.
        link: Bandwidth to its peers, bytes per second in one direction.

    Raises:
        ConfigurationError: a figure is not above 0.
    """

    flops: float
    bandwidth: float
    memory: int
    link: float

    def __post_init__(self) -> None:
        for each in fields(self):
            if not getattr(self, each.name) > 0:
                raise ConfigurationError(
                    f"{each.name} of a hardware must be above 0, got {getattr(self, each.name)}: FLOP/s, bytes/s, "
                    "bytes and bytes/s are wanted"
                )


HARDWARE: Mapping[str, Hardware] = MappingProxyType(
    {
        "A100-SXM-80": Hardware(flops=312e12, bandwidth=2.039e12, memory=80 * 10**9, link=300e9),
        "H100-SXM": Hardware(flops=989e12, bandwidth=3.35e12, memory=80 * 10**9, link=450e9),
        "H200-SXM": Hardware(flops=989e12, bandwidth=4.8e12, memory=141 * 10**9, link=450e9),
    }
)
"""By name. Bytes are decimal, as in the data sheets."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Which share of the data sheet is reached, and what the host adds. Bandwidth, flops and rho were fitted to
    operator times measured on an A100; the rest is assumed.

    Attributes:
        bandwidth: Reading weights.
        flops: Matrix products.
        kv_bandwidth: Reading keys and values.
        attention_flops: Attention of prompts.
        link: All-reduces.
        rho: How reading weights and arithmetic overlap, see `StepCosts`.
        per_step: Seconds of each step, whatever it holds.
        per_request: Seconds for each request of a step.
        per_all_reduce: Seconds of an all-reduce, however small.
    """

    bandwidth: float = 0.73
    flops: float = 0.667
    kv_bandwidth: float = 0.75
    attention_flops: float = 0.5
    link: float = 0.75
    rho: float = 1.3
    per_step: float = 2e-3
    per_request: float = 5e-6
    per_all_reduce: float = 10e-6
