"""Two configurations under live traffic, until one is shown to be better or has done harm."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import nan
from statistics import fmean, stdev
from types import TracebackType
from typing import Any, Literal, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

from enginecore.client import make_async_client
from enginecore.clock import Clock, RealClock
from enginecore.frontend.async_llm import DEFAULTS, AsyncLLM
from enginecore.frontend.tokenizer import load_tokenizer
from enginecore.interfaces import AsyncEngineCoreClient, Tokenizer
from enginecore.lab.live.ledger import ArmTally, Ledger, LiveRequest
from enginecore.lab.live.routed_client import RoutedClient
from enginecore.lab.live.sequential import SequentialTest
from enginecore.lab.live.switchback import Switchback
from enginecore.messages import EngineCoreOutputs, EngineCoreRequest
from enginecore.settings import load_settings

BASELINE, CANDIDATE = 0, 1
State = Literal["pilot", "running", "decided", "reverted", "undecided"]


class LiveSettings(BaseModel):
    """How a live experiment is run and judged.

    Attributes:
        metric: What decides: means per block of "ttft", "tpot" or "e2e" in seconds; less is better.
        block_seconds: Length of a block; five to ten times what the engine takes to drain.
        burn_in_seconds: From the start of each block, not counted.
        pilot_pairs: Pairs before the test, in which the baseline serves both blocks: how much a difference varies
            without an effect must be known before the test begins.
        sd: The same, if it is known already: then there is no pilot.
        num_pairs: Pairs after which the test is to be sharpest.
        max_pairs: Pairs after which it gives up.
        alpha: Chance of a wrong decision, over all looks together.
        ttft_slo: Seconds to the first token within which a request is served well.
        tpot_slo: Seconds per further token, likewise.
        min_attainment: The candidate is given up at once when less than this share of its latest requests is served
            well.
        guard_window: How many requests that share is taken over; none is judged by fewer than a tenth of them.
        penalty_seconds: What a request that fails counts as having taken; None: `block_seconds`.
        seed: Of the lots that order the blocks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: Literal["ttft", "tpot", "e2e"] = "ttft"
    block_seconds: float = Field(default=60.0, gt=0)
    burn_in_seconds: float = Field(default=10.0, ge=0)
    pilot_pairs: int = Field(default=10, ge=3)
    sd: float | None = Field(default=None, gt=0)
    num_pairs: int = Field(default=100, ge=1)
    max_pairs: int = Field(default=1000, ge=1)
    alpha: float = Field(default=0.05, gt=0, lt=1)
    ttft_slo: float | None = Field(default=None, gt=0)
    tpot_slo: float | None = Field(default=None, gt=0)
    min_attainment: float | None = Field(default=None, gt=0, le=1)
    guard_window: int = Field(default=200, ge=10)
    penalty_seconds: float | None = Field(default=None, gt=0)
    seed: int = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.burn_in_seconds >= self.block_seconds:
            raise ValueError(
                f"burn_in_seconds = {self.burn_in_seconds} leaves nothing of block_seconds = {self.block_seconds}"
            )
        if self.min_attainment is not None and self.ttft_slo is None and self.tpot_slo is None:
            raise ValueError("min_attainment needs ttft_slo or tpot_slo: what being served well means")
        return self

    def is_met_by(self, request: LiveRequest) -> bool:
        """Whether a completed request was served well."""
        ttft_met = self.ttft_slo is None or request.ttft <= self.ttft_slo
        return ttft_met and (self.tpot_slo is None or request.tpot <= self.tpot_slo)


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
    """Where an experiment stands.

    Attributes:
        state: "pilot", "running", "decided", "reverted" or "undecided".
        sentence: The same for people, with the reason.
        num_pairs: Pairs of blocks that count.
        skipped_pairs: Pairs with a block in which nobody came.
        difference: Mean of candidate - baseline over the pairs, in seconds.
        half_width: Of the confidence sequence around it; infinite with few pairs.
        e_value: Evidence against "no difference"; decided at 1 / alpha.
        p_value: Valid however often it is looked at.
        sd: Of a difference without effect; NaN during the pilot.
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


class LiveExperiment:
    """Serves through `llm`, an AsyncLLM like any other, and finds out which configuration serves better.

        async with LiveExperiment({"model": "m"}, {"scheduler": {"use": "srpt"}}) as live:
            ...  # live.llm.generate(...) as always
            print(live.report().sentence)

    Each arm has an engine core of its own. Blocks of time go to one or the other, in pairs whose order is drawn by lot.
    Once it is decided all requests go to the better one, and to the baseline when the candidate has done harm.

    Args:
        baseline: Settings, as of an AsyncLLM.
        candidate: What is different in the other arm.
        settings: How it is run and judged.

    Raises:
        EngineCoreError: an engine core cannot start, or they cannot be compared.
    """

    def __init__(
        self,
        baseline: Mapping[str, Any],
        candidate: Mapping[str, Any],
        settings: LiveSettings | None = None,
    ) -> None:
        arms = [load_settings(arm, defaults=DEFAULTS) for arm in (baseline, overridden(baseline, candidate))]
        clients: list[AsyncEngineCoreClient] = []
        try:
            clients += [make_async_client(arm) for arm in arms]
            self._start(clients, functools.partial(load_tokenizer, arms[BASELINE]), settings, RealClock())
        except BaseException:
            for client in clients:
                client.shutdown()
            raise

    @classmethod
    def from_clients(
        cls,
        clients: Sequence[AsyncEngineCoreClient],
        get_tokenizer: Callable[[], Tokenizer],
        settings: LiveSettings | None = None,
        *,
        clock: Clock | None = None,
    ) -> Self:
        """Over engine cores that run already; the clients, baseline's and candidate's, are its own from now on."""
        live = cls.__new__(cls)
        live._start(clients, get_tokenizer, settings, clock or RealClock())
        return live

    def _start(
        self,
        clients: Sequence[AsyncEngineCoreClient],
        get_tokenizer: Callable[[], Tokenizer],
        settings: LiveSettings | None,
        clock: Clock,
    ) -> None:
        self.settings = settings or LiveSettings()
        self._clock = clock
        self._began = clock.now()
        self._switchback = Switchback(self.settings.block_seconds, self.settings.burn_in_seconds, self.settings.seed)
        penalty = self.settings.penalty_seconds or self.settings.block_seconds
        self._ledger = Ledger(self.settings.metric, penalty, self.settings.is_met_by, self.settings.guard_window)
        self._pilot: list[float] = []
        self._test = self._make_test(self.settings.sd)
        self._next_pair = self._skipped = 0
        self._first_pair = 0  # of the pilot, then of the test
        self._end: tuple[State, int, str] | None = None
        self._is_closing = False
        self._client = _Observed(clients, self)
        self.llm = AsyncLLM.from_client(self._client, get_tokenizer, clock=clock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.llm.drain()

    def shutdown(self) -> None:
        """End both engine cores."""
        self.llm.shutdown()

    # -- traffic -----------------------------------------------------------------------------------------------------

    def route(self, request: EngineCoreRequest) -> int:
        """Which arm a request goes to now."""
        now = self._clock.now()
        self._settle(now)
        if self._end is not None:
            return self._end[1]
        block = self._switchback.at(now - self._began)
        arm = BASELINE if self._test is None else block.arm
        self._ledger.send(request.request_id, arm, block, now)
        return arm

    def saw(self, arm: int, outputs: EngineCoreOutputs) -> None:
        """What an arm's engine core gave."""
        now = self._clock.now()
        for output in outputs.outputs:
            self._ledger.see(output, now)
        self._guard()
        self._settle(now)

    def left(self, request_ids: Iterable[str]) -> None:
        """Requests that their clients have had enough of."""
        now = self._clock.now()
        for request_id in request_ids:
            self._ledger.leave(request_id, now)

    def refused(self, request_id: str) -> None:
        """A request that no engine core took."""
        self._ledger.drop(request_id)

    def closing(self) -> None:
        """From here on an engine core that ends is no failure."""
        self._is_closing = True

    # -- judgement ---------------------------------------------------------------------------------------------------

    def report(self) -> LiveReport:
        """Where it stands now. May be asked for as often as one likes: the test allows for it."""
        test = self._test
        state, _, sentence = self._end or (*self._state(), "")
        return LiveReport(
            state=state,
            sentence=sentence or self._progress(),
            num_pairs=test.num_pairs if test else 0,
            skipped_pairs=self._skipped,
            difference=test.mean if test else nan,
            half_width=test.half_width if test else nan,
            e_value=test.e_value if test else 1.0,
            p_value=test.p_value if test else 1.0,
            sd=self._sd,
            arms=(_arm_report(self._ledger.tallies[0]), _arm_report(self._ledger.tallies[1])),
        )

    def _state(self) -> tuple[State, int]:
        return ("pilot" if self._test is None else "running"), BASELINE

    def _progress(self) -> str:
        if self._test is None:
            return f"pilot: {len(self._pilot)} of {self.settings.pilot_pairs} pairs of blocks measured"
        return (
            f"undecided after {self._test.num_pairs} pairs of blocks: the evidence stands at {self._test.e_value:.3g}, "
            f"and decides at {1 / self.settings.alpha:.3g}"
        )

    def _make_test(self, sd: float | None) -> SequentialTest | None:
        self._sd = nan if sd is None else sd
        return None if sd is None else SequentialTest(sd, self.settings.num_pairs, self.settings.alpha)

    def _settle(self, now: float) -> None:
        """Judge the pairs of blocks that are over, in order."""
        while self._end is None and self._switchback.at(now - self._began).pair > self._next_pair:
            values = self._ledger.take_pair(self._next_pair)
            if values is None:
                return
            pair, self._next_pair = self._next_pair, self._next_pair + 1
            if pair < self._first_pair:
                continue
            if not all(values):
                self._skipped += 1
                continue
            first, second = map(fmean, values)
            self._count(second - first if self._switchback.arm_of(2 * pair) == BASELINE else first - second)

    def _count(self, difference: float) -> None:
        """One more pair: candidate - baseline."""
        test, settings = self._test, self.settings
        if test is None:
            self._pilot.append(difference)
            if len(self._pilot) >= settings.pilot_pairs and (sd := stdev(self._pilot)) > 0:
                self._test = self._make_test(sd)
                self._first_pair = self._switchback.at(self._clock.now() - self._began).pair + 1  # this one is mixed
            return
        test.add(difference)
        if test.is_decided:
            better = CANDIDATE if test.mean < 0 else BASELINE
            name = ("baseline", "candidate")[better]
            self._finish(
                "decided",
                better,
                f"the {name} is better: {settings.metric} of candidate - baseline is {test.mean:+.4g} s over "
                f"{test.num_pairs} pairs of blocks (p <= {test.p_value:.2g})",
            )
        elif test.num_pairs >= settings.max_pairs:
            self._finish("undecided", BASELINE, f"no difference was shown in max_pairs = {settings.max_pairs} pairs")

    def _guard(self) -> None:
        """Give the candidate up if it does harm."""
        if self._end is not None or self._is_closing:
            return
        failures = [client.failure for client in self._client.clients]
        for arm, failure in enumerate(failures):
            if failure is not None:
                name = ("baseline", "candidate")[arm]
                self._finish("reverted", 1 - arm, f"the {name}'s engine core has failed: {failure}")
                return
        tally, least = self._ledger.tallies[CANDIDATE], self.settings.min_attainment
        if least is not None and len(tally.met) >= self.settings.guard_window / 10 and tally.attainment < least:
            self._finish(
                "reverted",
                BASELINE,
                f"the candidate served {tally.attainment:.1%} of its last {len(tally.met)} requests within the "
                f"objectives, below min_attainment = {least:.1%}",
            )

    def _finish(self, state: State, arm: int, sentence: str) -> None:
        self._end = (state, arm, sentence)


class _Observed(RoutedClient):
    """Tells the experiment what its clients and engine cores do."""

    def __init__(self, clients: Sequence[AsyncEngineCoreClient], live: LiveExperiment) -> None:
        super().__init__(clients, live.route, live.saw)
        self._live = live

    def add_request(self, request: EngineCoreRequest) -> None:
        try:
            super().add_request(request)
        except BaseException:
            self._live.refused(request.request_id)
            raise

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        ids = list(request_ids)
        self._live.left(ids)
        super().abort_requests(ids)

    async def drain(self) -> None:
        self._live.closing()
        await super().drain()

    def shutdown(self) -> None:
        self._live.closing()
        super().shutdown()


def overridden(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with changes laid over them, table by table."""
    merged = dict(settings)
    for name, value in changes.items():
        below = merged.get(name)
        merged[name] = overridden(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def _arm_report(tally: ArmTally) -> ArmReport:
    return ArmReport(
        completed=len(tally.values["e2e"]),
        failed=tally.failed,
        aborted=tally.aborted,
        ttft=tally.mean("ttft"),
        tpot=tally.mean("tpot"),
        e2e=tally.mean("e2e"),
        attainment=tally.attainment,
    )
