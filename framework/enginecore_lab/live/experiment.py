"""A live experiment: two configurations under live traffic, until one is better or has done harm."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import nan
from statistics import fmean, stdev
from types import TracebackType
from typing import Any, Self

from enginecore.client import AsyncRoutedClient, make_async_client
from enginecore.clock import Clock, RealClock
from enginecore.frontend.async_engine import DEFAULTS
from enginecore.frontend.async_llm import AsyncLLM
from enginecore.frontend.tokenizer import load_tokenizer
from enginecore.interfaces import AsyncEngineCoreClient, Tokenizer
from enginecore.messages import EngineCoreOutputs, EngineCoreRequest
from enginecore.settings import load_settings
from enginecore.settings.sources import expanded, overlay
from enginecore_lab.live.ledger import Ledger
from enginecore_lab.live.reports import LiveReport, State, arm_report
from enginecore_lab.live.sequential import SequentialTest
from enginecore_lab.live.settings import LiveSettings
from enginecore_lab.live.switchback import Switchback

BASELINE, CANDIDATE = 0, 1
NAMES = ("baseline", "candidate")


class LiveExperiment:
    """Serves through `llm`, an AsyncLLM like any other, and finds out which configuration serves better.

        async with LiveExperiment({"model": "m"}, {"scheduler": {"use": "srpt"}}) as live:
            ...  # live.llm.generate(...) as always
            print(live.report().sentence)

    Each arm has an engine core of its own. Blocks of time go to one or the other, in pairs whose order is drawn by lot.
    Once it is decided all requests go to the better one, and to the baseline when the candidate has done harm.

    Args:
        baseline: Settings, as of an AsyncLLM.
        candidate: Settings that differ in the other arm.
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
        both = expanded(baseline), overlay(expanded(baseline), expanded(candidate))
        arms = [load_settings(arm, defaults=DEFAULTS) for arm in both]
        clients: list[AsyncEngineCoreClient] = []
        try:
            for arm in arms:
                clients.append(make_async_client(arm))  # one by one: the first is known, and ended, if the second fails
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
        """Record the outputs of an arm's engine core."""
        now = self._clock.now()
        for output in outputs.outputs:
            self._ledger.see(output, now)
        self._guard()
        self._settle(now)

    def left(self, request_ids: Iterable[str]) -> None:
        """Requests that their clients have had enough of."""
        now = self._clock.now()
        for request_id in request_ids:
            self._ledger.record_departure(request_id, now)

    def refused(self, request_id: str) -> None:
        """A request that no engine core took."""
        self._ledger.drop_request(request_id)

    def closing(self) -> None:
        """From here on an engine core that ends is no failure."""
        self._is_closing = True

    # -- judgement ---------------------------------------------------------------------------------------------------

    def report(self) -> LiveReport:
        """The state of the experiment. It may be read at any time: the test allows for it."""
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
            arms=(arm_report(self._ledger.tallies[0]), arm_report(self._ledger.tallies[1])),
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
        test.add_difference(difference)
        if test.is_decided:
            better = CANDIDATE if test.mean < 0 else BASELINE
            self._finish(
                "decided",
                better,
                f"the {NAMES[better]} is better: {settings.metric} of candidate - baseline is {test.mean:+.4g} s over "
                f"{test.num_pairs} pairs of blocks (p <= {test.p_value:.2g})",
            )
        elif test.num_pairs >= settings.max_pairs:
            self._finish("undecided", BASELINE, f"no difference was shown in max_pairs = {settings.max_pairs} pairs")

    def _guard(self) -> None:
        """Leave an engine core that has failed, whatever was decided; give the candidate up if it does harm."""
        if self._is_closing or self._leave_the_dead() or self._end is not None:
            return
        tally, least = self._ledger.tallies[CANDIDATE], self.settings.min_attainment
        if least is not None and len(tally.met) >= self.settings.guard_window / 10 and tally.attainment < least:
            self._finish(
                "reverted",
                BASELINE,
                f"the candidate served {tally.attainment:.1%} of its last {len(tally.met)} requests within the "
                f"objectives, below min_attainment = {least:.1%}",
            )

    def _leave_the_dead(self) -> bool:
        """Whether an arm that gets requests has failed, so that all of them go to the other one now."""
        failures = [client.failure for client in self._client.clients]
        for arm in (BASELINE, CANDIDATE) if self._end is None else (self._end[1],):
            if failures[arm] is not None and failures[1 - arm] is None:
                decided = f"{self._end[2]}; later " if self._end else ""
                failed = f"{decided}the {NAMES[arm]}'s engine core has failed: {failures[arm]}"
                self._finish("reverted", 1 - arm, failed)
                return True
        return False

    def _finish(self, state: State, arm: int, sentence: str) -> None:
        self._end = (state, arm, sentence)


class _Observed(AsyncRoutedClient):
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
