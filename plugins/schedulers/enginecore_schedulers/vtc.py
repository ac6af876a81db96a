"""Fair shares of tenants by virtual token counters."""

from collections import Counter
from collections.abc import Collection, Hashable
from heapq import heappop, heappush, heapreplace

from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy
from enginecore_schedulers.arguments import NotNegative, Positive

LEASE = 16
"""Output tokens after which a running request is charged."""

TIDY = 1_000
"""Counters to keep without looking whether they are still needed."""


class Counters:
    """Tokens served to each tenant, and which waiting tenant was served least.

    Attributes:
        served: By tenant; only grows.
    """

    def __init__(self) -> None:
        self.served: dict[Hashable, float] = {}
        # a heap; a tenant's counter may have grown since
        self._order: list[tuple[float, Hashable]] = []
        self._ordered: set[Hashable] = set()

    def least(self, waiting: Collection[Hashable]) -> Hashable:
        """The tenant that was served least, of these, each of which stands in line."""
        while True:
            served, tenant = self._order[0]
            if tenant not in waiting:
                self._ordered.discard(heappop(self._order)[1])
            elif served < self.served[tenant]:
                heapreplace(self._order, (self.served[tenant], tenant))
            else:
                return tenant

    def line_up(self, tenant: Hashable) -> None:
        """Put a tenant in line, which is about to wait."""
        if tenant not in self._ordered:
            self._ordered.add(tenant)
            heappush(self._order, (self.served[tenant], tenant))

    def lift(self, tenant: Hashable, floor: float) -> None:
        """Raise what a tenant was served to at least this."""
        self.served[tenant] = max(self.served.get(tenant, 0.0), floor)

    def forget(self, kept: Collection[Hashable], floor: float) -> None:
        """Forget tenants, beside these, that would be lifted if they returned."""
        self.served = {tenant: n for tenant, n in self.served.items() if n > floor or tenant in kept}


class Vtc(SchedulingPolicy):
    """Fair shares: the tenant served least has the next request.

    The virtual token counter (Sheng et al., "Fairness in Serving Large Language Models", OSDI
    2024): prompt tokens are charged when a request is admitted, output tokens as they come, each
    divided by the tenant's share. A tenant that had nothing waiting is lifted to the least served
    of those that have: idle time earns no credit. While two tenants both have requests waiting,
    what they were served differs by no more than twice the larger of a prompt's charge and that of
    as many output tokens as the KV cache holds, however much either of them asks for.

    Args:
        prompt_weight: Charge of a prompt token.
        output_weight: Charge of an output token.
        shares: Share of each tenant, relative to others; 1 for those that are not named.
    """

    def __init__(
        self,
        prompt_weight: NotNegative = 1.0,
        output_weight: Positive = 2.0,
        shares: dict[str, Positive] | None = None,
    ) -> None:
        self._prompt_weight = prompt_weight
        self._output_weight = output_weight
        self._shares = shares or {}
        self._counters = Counters()
        self._last: Hashable = None  # whose request was admitted last
        self._charged: dict[str, int] = {}  # output tokens of live requests
        self._live = Counter[Hashable]()  # requests of tenants
        self._tidy_at = TIDY

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        return request.arrival

    def lane(self, request: RequestView) -> str:
        return request.tenant

    def choose(self, scheduler: SchedulerView) -> RequestView:
        return scheduler.waiting.head(self._counters.least(scheduler.waiting.lanes()))

    def lease(self, request: RequestView, scheduler: SchedulerView) -> int:
        self._charge_output(request)
        return LEASE

    def added(self, request: RequestView, scheduler: SchedulerView) -> None:
        self._charged[request.request_id] = 0
        self._live[request.tenant] += 1
        if request.tenant not in scheduler.waiting.lanes():
            self._counters.lift(request.tenant, self._floor(scheduler))
            self._counters.line_up(request.tenant)

    def preempted(self, request: RequestView, scheduler: SchedulerView) -> None:
        self._counters.line_up(request.tenant)

    def admitted(self, request: RequestView, scheduler: SchedulerView) -> None:
        self._last = request.tenant
        if not request.num_preemptions:  # what is computed again is not charged again
            self._charge(request.tenant, self._prompt_weight * request.num_prompt_tokens)

    def ended(self, request: RequestView, scheduler: SchedulerView) -> None:
        self._charge_output(request)
        del self._charged[request.request_id]
        self._live[request.tenant] -= 1
        if len(self._counters.served) > self._tidy_at:
            self._live = +self._live
            self._counters.forget({*self._live, self._last}, self._floor(scheduler))
            self._tidy_at = max(TIDY, 2 * len(self._counters.served))

    def _floor(self, scheduler: SchedulerView) -> float:
        """The least that a waiting tenant was served; if none waits, the last admitted one."""
        waiting = scheduler.waiting.lanes()
        return self._counters.served.get(self._counters.least(waiting) if waiting else self._last, 0.0)

    def _charge(self, tenant: str, tokens: float) -> None:
        self._counters.served[tenant] += tokens / self._shares.get(tenant, 1.0)

    def _charge_output(self, request: RequestView) -> None:
        tokens = request.num_attained_tokens
        if tokens > self._charged[request.request_id]:
            self._charge(request.tenant, self._output_weight * (tokens - self._charged[request.request_id]))
            self._charged[request.request_id] = tokens
