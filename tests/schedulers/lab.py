"""Policies on the oracle in virtual time, and what their clients would have measured."""

import itertools
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random
from statistics import mean
from typing import Any

from enginecore.clock import VirtualClock
from enginecore.messages import EngineCoreRequest
from enginecore.sampling import SamplingParams
from enginecore_conformance.oracle.model import OracleModel
from enginecore_conformance.transcript import Transcript
from tests.core.engines import make_core

VOCABULARY = 16


@dataclass
class Job:
    """A request, when it comes, and when its tokens came."""

    at: float
    request: EngineCoreRequest
    token_times: list[float] = field(default_factory=list)
    ended: float = inf
    error: str | None = None

    @property
    def name(self) -> str:
        return self.request.request_id

    @property
    def ttft(self) -> float:
        return self.token_times[0] - self.at

    @property
    def latency(self) -> float:
        return self.ended - self.at

    @property
    def largest_gap(self) -> float:
        """The longest that it waited from one token to the next."""
        return max((b - a for a, b in itertools.pairwise(self.token_times)), default=0.0)


def job(
    name: str, at: float, prompt: int | list[int], tokens: int, *, max_tokens: int | None = None, **fields: Any
) -> Job:
    """A request that gets exactly `tokens` tokens; a prompt that is given by its length is like no other's.

    With `max_tokens`, that is all that the request says: it ends before, by a stop token that nobody foresees.
    """
    random = Random(name)
    ids = [random.randrange(VOCABULARY) for _ in range(prompt)] if isinstance(prompt, int) else prompt
    hidden = max_tokens is not None
    params = SamplingParams(
        temperature=0,
        ignore_eos=True,
        max_tokens=max_tokens if hidden else tokens,
        min_tokens=tokens - 1 if hidden else 0,
        stop_token_ids=tuple(range(VOCABULARY)) if hidden else (),
    )
    return Job(at, EngineCoreRequest(request_id=name, prompt_token_ids=ids, params=params, **fields))


class Trial:
    """One policy, one workload, on an engine core in virtual time, to the end; every token is checked.

    Steps take `step_time` seconds, and `token_time` more for each token. `policy_settings` is the policy's own table,
    `oracle` further settings of the executor, and everything else as in `load_settings`.
    """

    def __init__(self, policy, jobs, *, step_time=1.0, token_time=0.0, policy_settings=None, oracle=None, **settings):
        self.jobs = {each.name: Job(each.at, each.request) for each in jobs}
        self.clock = VirtualClock()
        self.core = make_core(
            clock=self.clock,
            oracle={
                "step_time": step_time,
                "token_time": token_time,
                "record": True,
                "verify": False,
                "vocab_size": VOCABULARY,
                **(oracle or {}),
            },
            scheduler={"use": policy, policy: policy_settings or {}},
            **{"num_kv_blocks": 4096, "max_num_batched_tokens": 512, **settings},
        )
        self.transcript = Transcript()
        for each in self.jobs.values():
            self.clock.call_at(each.at, partial(self._arrive, each.request))
        self._run()
        self.transcript.check(OracleModel.of_engine(self.core.info))
        self.stats = self.core.scheduler.get_stats()
        assert self.stats.num_free_blocks == self.stats.num_blocks
        (self.steps,) = self.core.executor.collective_rpc("get_history")
        self.makespan = max((each.ended for each in self.jobs.values()), default=0.0)

    def _arrive(self, request):
        self.core.add_request(request)
        self.transcript.begin(request)

    def _run(self):
        while True:
            if self.core.has_requests():
                self._record(self.core.advance()[0])
            elif (event := self.clock.next_event()) is not None:
                self.clock.wait(deadline=event)
            else:
                return

    def _record(self, outputs):
        for due in outputs.values():
            self.transcript.record(due.outputs)
            for output in due.outputs:
                of = self.jobs[output.request_id]
                of.token_times += [self.clock.now()] * len(output.new_token_ids)
                if output.finish_reason is not None:
                    of.ended, of.error = self.clock.now(), output.error

    def __getitem__(self, name) -> Job:
        return self.jobs[name]

    @property
    def computed_tokens(self):
        """Tokens that went through the model."""
        return sum(step.plan.total_num_scheduled_tokens for step in self.steps)

    @property
    def hit_share(self):
        """Share of prompt tokens that the prefix cache had."""
        return self.stats.prefix_cache_hits / self.stats.prefix_cache_queries

    def of(self, prefix=""):
        """Jobs whose names begin so."""
        return [each for each in self.jobs.values() if each.name.startswith(prefix)]

    def mean_latency(self, prefix=""):
        return mean(each.latency for each in self.of(prefix))

    def mean_ttft(self, prefix=""):
        return mean(each.ttft for each in self.of(prefix))
