"""Tenants of requests."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from pydantic import Field

from enginecore_lab.tables import Table
from enginecore_lab.workload import Workload


class Tenant(Table):
    """One of those who share an engine.

    A request's own priority and terms stay where its tenant says none.

    Attributes:
        name: As policies and reports see it.
        weight: Share of the requests (of the sessions, where there are any), against the others'
            weights.
        priority: Priority of its requests; smaller is more urgent.
        ttft_slo: Seconds within which it wants first tokens.
        tpot_slo: Seconds per token that it wants afterwards.
    """

    name: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0)
    priority: float = 0
    ttft_slo: float | None = Field(default=None, gt=0)
    tpot_slo: float | None = Field(default=None, gt=0)

    def terms(self) -> dict[str, Any]:
        """Terms that are set; a request keeps its own values of the others."""
        return self.model_dump(include={"priority", "ttft_slo", "tpot_slo"} & self.model_fields_set)


def assign_tenants(workload: Workload, tenants: Sequence[Tenant], rng: np.random.Generator) -> Workload:
    """Draw a tenant for each request. Requests of a session have the same one.

    Of Poisson arrivals each tenant's share is a Poisson process again, at its share of the rate.
    """
    weights = np.array([tenant.weight for tenant in tenants])
    drawn = rng.choice(len(tenants), len(workload.requests), p=weights / weights.sum()).tolist()
    by_session: dict[str, int] = {}
    requests = []
    for request, choice in zip(workload.requests, drawn, strict=True):
        number = choice if request.session is None else by_session.setdefault(request.session, choice)
        tenant = tenants[number]
        requests.append(msgspec.structs.replace(request, tenant=tenant.name, **tenant.terms()))
    return msgspec.structs.replace(workload, requests=requests)
