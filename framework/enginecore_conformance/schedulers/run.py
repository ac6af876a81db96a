"""A run of a scheduler on the oracle, watched, move by move."""

from collections.abc import Mapping, Sequence
from typing import Any

from enginecore.contracts import BrokenRule
from enginecore.errors import InvalidRequestError
from enginecore.messages import EngineCoreRequest, FinishReason
from enginecore.plugin import Component
from enginecore.sampling import SamplingParams
from enginecore_conformance.harness import Conditions, SchedulerHarness
from enginecore_conformance.invariants import check_quiescence
from enginecore_conformance.judge import Judge
from enginecore_conformance.oracle.settings import Fault, OracleSettings
from enginecore_conformance.parts import Parts
from enginecore_conformance.subject import Options, Subject
from enginecore_conformance.trace import Trace

MAX_STEPS = 2_000
"""No trace takes more to its end."""
ORACLE = ("depth", "feeds_tokens", "in_order", "step_time", "vocab_size", "two_phase")


class SchedulerRun:
    """A scheduler on the oracle executor; each call is checked against the contract.

    Args:
        component: The scheduler, as in `check_component`.
        settings: Settings of the component.
        engine: Further settings of the engine: which KV cache manager, victim choice and eviction
            it works with.
        allow: As `plugins.allow`.
        **conditions: Fields of `Conditions`, and of the oracle: `depth`, `feeds_tokens`,
            `in_order`, `step_time`, `vocab_size`, `two_phase`.

    Raises:
        BrokenRule: out of each method, and whatever part breaks its contract: names the rule.
    """

    def __init__(
        self,
        component: Component | str,
        *,
        settings: Mapping[str, Any] | None = None,
        engine: Mapping[str, Any] | None = None,
        allow: Sequence[str] | None = None,
        **conditions: Any,
    ) -> None:
        subject = Subject.find(component, Options(settings=settings, engine=engine, allow=allow))
        self._start(Parts(subject.loaded), conditions)

    @classmethod
    def of(cls, parts: Parts, conditions: Mapping[str, Any]) -> "SchedulerRun":
        """A run of these parts."""
        run = cls.__new__(cls)
        run._start(parts, conditions)
        return run

    def _start(self, parts: Parts, conditions: Mapping[str, Any]) -> None:
        oracle = {name: value for name, value in conditions.items() if name in ORACLE}
        others = {name: value for name, value in conditions.items() if name not in ORACLE}
        made = Conditions(oracle=OracleSettings(**{"vocab_size": 32, **oracle}), **others)
        with Judge("scheduler"):
            self.harness = SchedulerHarness(
                made,
                parts.make_scheduler,
                parts.make_kv_cache_manager,
                make_victim=parts.make_victim,
                make_eviction=parts.make_eviction,
                watch=True,
            )

    def add(
        self,
        request_id: str,
        prompt: Sequence[int],
        max_tokens: int = 8,
        *,
        stop: Sequence[int] = (),
        min_tokens: int = 0,
        seed: int | None = None,
        ignore_eos: bool = True,
        **fields: Any,
    ) -> None:
        """Send a request; one whose id is taken is to be refused. `fields` are those of
        `EngineCoreRequest`.
        """
        params = SamplingParams(
            temperature=0.0 if seed is None else 1.0,
            seed=0 if seed is None else seed,
            max_tokens=max_tokens,
            min_tokens=min_tokens,
            stop_token_ids=tuple(stop),
            ignore_eos=ignore_eos,
        )
        request = EngineCoreRequest(request_id=request_id, prompt_token_ids=list(prompt), params=params, **fields)
        with Judge("scheduler"):
            self.harness.take_outputs()
            try:
                self.harness.add(request)
            except InvalidRequestError:
                return
            self._look()

    def step(self, times: int = 1) -> None:
        """Do what an engine does: submit, or settle the oldest step in flight, or wait."""
        with Judge("scheduler"):
            for _ in range(times):
                self.harness.step()
            self._look()

    def submit(self) -> None:
        """Plan and submit a step, if there is room in the queue of batches."""
        with Judge("scheduler"):
            self.harness.submit()
            self._look()

    def settle(self) -> None:
        """Wait for the oldest step in flight, if there is one."""
        with Judge("scheduler"):
            self.harness.settle()
            self._look()

    def abort(self, *request_ids: str) -> None:
        """Clients close requests."""
        with Judge("scheduler"):
            self.harness.abort(request_ids)
            self._look()

    def end(self, *request_ids: str, reason: str = "abort") -> None:
        """The engine ends requests, by a reason: "abort" or "error"."""
        with Judge("scheduler"):
            error = "ended by the check" if reason == "error" else None
            self.harness.finish(request_ids, FinishReason[reason.upper()], error)
            self._look()

    def reset(self, running: bool = False) -> None:
        """Forget the prefix cache; with `running`, of running requests too."""
        with Judge("scheduler"):
            self.harness.reset_prefix_cache(running)
            self._look()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        with Judge("scheduler"):
            self.harness.clock.wait(deadline=self.harness.clock.now() + seconds)

    def fault(self, kind: str, request_id: str) -> None:
        """Let the executor go wrong: "drop" or "error" the next token of a request, "reject" it in
        its next step, or make a token of an "unknown" one.
        """
        with Judge("scheduler"):
            self.harness.executor.collective_rpc(
                "inject", Fault.model_validate({"kind": kind, "request_id": request_id})
            )

    def play(self, trace: Trace) -> None:
        """All moves of a trace, and the end."""
        for move in trace.moves:
            getattr(self, move.method)(*move.args, **move.kwargs)
        self.finish()

    def finish(self, max_steps: int = MAX_STEPS) -> None:
        """Step until everything has ended: all tokens are right, and nothing is left."""
        harness = self.harness
        with Judge("scheduler"):
            for _ in range(max_steps):
                if not (harness.scheduler.has_requests() or harness.num_in_flight):
                    break
                harness.step()
            else:
                stats = harness.scheduler.get_stats()
                raise BrokenRule("scheduler", "progress_or_a_wake_time", f"no end after {max_steps} steps: {stats}")
            self._look()
        open_ids = harness.transcript.open_ids
        if open_ids:
            raise BrokenRule("scheduler", "one_last_word", f"all has ended, and clients of {open_ids} were not told")
        with Judge("scheduler", {"transcript": "policy_does_not_change_tokens"}):
            harness.transcript.check(harness.conditions.model)
        with Judge("scheduler"):
            check_quiescence(harness.scheduler, harness.kv_cache_manager, harness.executor)

    def _look(self) -> None:
        self.harness.scheduler.get_stats()
