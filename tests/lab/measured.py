"""Measurements as if somebody had measured them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from enginecore_lab.interfaces import Direction
from enginecore_lab.measurement import Measurement


@dataclass(frozen=True)
class Facts:
    name: str
    unit: str = "s"
    direction: Direction = "lower"

    @property
    def follows_queue(self) -> bool:
        return self.unit == "s" and self.name != "makespan"


def measurement(values: dict[str, float], **fields: Any) -> Measurement:
    given: dict[str, Any] = {
        "values": values,
        "refused": {},
        "saturated": False,
        "num_requests": 100,
        "num_failed": 0,
        "fingerprint": "",
        "workload_hash": "",
        "workload": "made up",
        "loop": "open",
        "info": {},
        "settings": {},
        "virtual": True,
    }
    return Measurement(**(given | fields))


def arm(metric: str, values: Iterable[float], **fields: Any) -> list[Measurement]:
    return [measurement({metric: value}, **fields) for value in values]
