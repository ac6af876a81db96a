"""Policies on the oracle in virtual time, and what their clients would have measured."""

import itertools
from dataclasses import dataclass, field
from functools import partial
from random import Random
from statistics import mean
from typing import Any

from enginecore.messages import EngineCoreRequest
from enginecore.sampling import SamplingParams
from enginecore_schedulers import enginecore_components
from tests.scheduling.harnesses import make_harness

COMPONENTS = {component.name: component for component in enginecore_components()}


def make_policy(name, **settings):
    """The policy as an engine would make it: its settings are validated, and defaults apply."""
    component = COMPONENTS[name]
    checked = component.settings(**settings)
    return component.factory._policy(**{key: getattr(checked, key) for key in type(checked).model_fields})  # type: ignore[attr-defined]


@dataclass
class Job:
    """A request, when it comes, and when its tokens came."""

    at: float
    request: EngineCoreRequest
    token_times: list[float] = field(default_factory=list)
    ended: float | None = None
    error: str | None = None

    @property
    def name(self) -> str:
        return self.request.request_id

    @property
    def ttft(self) -> float:
        return self.token_times[0] - self.at

    @property
    def latency(self) -> float:
        assert self.ended is not None
        return self.ended - self.at

    @property
    def largest_gap(self) -> float:
        """The longest that it waited from one token to the next."""
        return max((b - a for a, b in itertools.pairwise(self.token_times)), default=0.0)


def job(name: str, at: float, prompt: int | list[int], tokens: int, *, salt: int = 0, **fields: Any) -> Job:
    """A request for exactly `tokens` tokens; a prompt that is given by its length is like no other's."""
    random = Random(f"{name} {salt}")
    ids = [random.randrange(250) for _ in range(prompt)] if isinstance(prompt, int) else prompt
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    return Job(at, EngineCoreRequest(request_id=name, prompt_token_ids=ids, params=params, **fields))


class Trial:
    """One policy, one workload, run to its end; every token and every block is checked on the way.

    Steps take `step_time` seconds and `token_time` more for each token. Everything else is as in `Conditions`.
    """

    def __init__(self, policy, jobs, *, step_time=1.0, token_time=0.0, oracle=None, watch=None, **conditions):
        self.policy = make_policy(policy) if isinstance(policy, str) else policy
        self.jobs = {job.name: Job(job.at, job.request) for job in jobs}
        conditions = {"max_model_len": 4096, "num_blocks": 4096, "max_num_batched_tokens": 512, **conditions}
        oracle = {"step_time": step_time, "token_time": token_time, **(oracle or {})}
        self.harness = make_harness(policy=self.policy, oracle=oracle, **conditions)
        for each in self.jobs.values():
            self.harness.clock.call_at(each.at, partial(self._arrive, each))
        self._run(watch)

    def _arrive(self, arriving):
        self.harness.add(arriving.request)

    def _run(self, watch):
        harness = self.harness
        while True:
            if harness.scheduler.has_requests() or harness.num_in_flight:
                harness.step()
                self._look()
                if watch:
                    watch(self)
            elif (event := harness.clock.next_event()) is not None:
                harness.clock.wait(deadline=event)
            else:
                break
        harness.run()  # nothing is left to do: checks all tokens, and that no block is lost
        self.makespan = max((each.ended or 0.0 for each in self.jobs.values()), default=0.0)

    def _look(self):
        now, transcript = self.harness.clock.now(), self.harness.transcript
        for name, each in self.jobs.items():
            if each.ended is None and name in transcript:
                story = transcript[name]
                each.token_times += [now] * (len(story.token_ids) - len(each.token_times))
                if story.terminal:
                    each.ended, each.error = now, story.terminal.error

    def __getitem__(self, name) -> Job:
        return self.jobs[name]

    @property
    def stats(self):
        return self.harness.scheduler.get_stats()

    @property
    def computed_tokens(self):
        """Tokens that went through the model."""
        return sum(plan.total_num_scheduled_tokens for plan in self.harness.plans)

    def of(self, prefix=""):
        """Jobs whose names begin so."""
        return [each for each in self.jobs.values() if each.name.startswith(prefix)]

    def mean_latency(self, prefix=""):
        return mean(each.latency for each in self.of(prefix))

    def mean_ttft(self, prefix=""):
        return mean(each.ttft for each in self.of(prefix))
