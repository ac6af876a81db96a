"""Field cases 24, 25 and 45: aborts at every moment of every step, among pauses, resets and clients that leave.

An abort comes between two rounds of the loop, or in the middle of a forward pass: there the virtual clock makes it, as
another thread would. The transcript refuses every word about a request that was aborted.
"""

import functools
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from enginecore.assembly import build_engine_core
from enginecore.clock import VirtualClock
from enginecore.messages import FinishReason
from enginecore.settings import load_settings
from enginecore_conformance.oracle.model import OracleModel
from enginecore_conformance.transcript import Transcript
from tests.core.engines import request
from tests.deferring import DEFERRING

ORACLES = {
    "plain": {},
    "feeds tokens": {"feeds_tokens": True},
    "out of order": {"in_order": False},
    "two phases": {"two_phase": True},
    "sampled later": {},
    "sampled later and fed": {"feeds_tokens": True},
}
REQUESTS = {"long": (14, 12, 0), "short": (5, 5, 1), "single": (9, 1, 1), "queued": (9, 6, 0), "last": (3, 9, 1)}
"""Prompt, output and client. A step takes 8 tokens of 3 requests."""

UNKNOWN = "never seen"


@functools.cache
def loaded(oracle, depth, num_kv_blocks):
    return load_settings(
        {
            "scheduler": {"use": "defers-some" if oracle.startswith("sampled later") else "fcfs"},
            "executor": {"use": "oracle", "oracle": {**ORACLES[oracle], "depth": depth, "step_time": 1.0}},
            "debug": {"check_invariants": True},
            "max_model_len": "auto",
            "num_kv_blocks": num_kv_blocks,
            "block_size": 4,
            "max_num_seqs": 3,
            "max_num_batched_tokens": 8,
        },
        components=DEFERRING,
        environ={},
    )


class Bench:
    """An engine core, what was asked of it and what it told; `seen` counts in what state things were hit."""

    def __init__(self, oracle="plain", depth=1, num_kv_blocks=12):
        self.clock = VirtualClock()
        self.core = build_engine_core(loaded(oracle, depth, num_kv_blocks), self.clock)
        self.depth, self.in_order = depth, oracle != "out of order"
        self.transcript = Transcript()
        self.seen: Counter[str] = Counter()
        for name in REQUESTS:
            self.add(name)

    def add(self, name):
        """Add one of `REQUESTS`, unless it is there: its id may be used again as soon as its abort was asked for."""
        if name not in self.transcript.open_ids:
            prompt, max_tokens, client = REQUESTS[name]
            wire = request(name, prompt=prompt, max_tokens=max_tokens)
            wire.client_index = client
            self.core.add_request(wire)
            self.transcript.begin(wire)

    def abort(self, *names):
        states = {r.request_id: r for r in self.core.scheduler.unfinished_requests}
        for name in names:
            state = states.get(name)
            in_flight = " in flight" if state and state.num_in_flight_tokens else ""
            self.seen[f"{state.status.name}{in_flight}" if state else "unknown"] += 1
        self.core.abort_requests(names)
        self.transcript.abort(names)

    def abort_at(self, time, *names):
        self.clock.call_at(time, lambda: self.abort(*names))

    def leave(self, client):
        self.core.abort_client(client)
        self.transcript.abort(name for name, (*_, index) in REQUESTS.items() if index == client)

    def pause(self, reset=None):
        self.core.call_utility("pause")
        if reset is not None:
            self.reset(reset)
        self.seen["paused in flight"] += self.core.has_requests() and self.depth > 1

    def resume(self):
        self.core.call_utility("resume")

    def reset(self, running_too):
        before = self.core.call_utility("get_stats")
        done = self.core.call_utility("reset_prefix_cache", running_too)
        after = self.core.call_utility("get_stats")
        if done:
            assert after.num_cached_blocks == 0
            self.seen["reset while paused"] += self.core.is_paused and before.num_running > 0
        else:
            assert before.num_free_blocks < before.num_blocks
            assert not (running_too and self.in_order)
            assert after.num_preemptions == before.num_preemptions

    def advance(self):
        paused, step = self.core.is_paused, self.core.scheduler.get_stats().step
        for client, due in self.core.advance()[0].items():
            assert {self.transcript[output.request_id].request.client_index for output in due.outputs} == {client}
            self.transcript.record(due.outputs)
        assert not paused or self.core.scheduler.get_stats().step == step

    def run(self, rounds=()):
        """To the end: before round n the calls in `rounds[n]`. What is paused is resumed once it has come to rest."""
        for calls in rounds:
            for name, *arguments in calls:
                getattr(self, name)(*arguments)
            self.advance()
        self.come_to_rest()
        if self.core.is_paused:
            self.seen["at rest"] += self.core.has_unfinished_requests()
            self.resume()
            self.come_to_rest()
        self.check()

    def come_to_rest(self):
        for _ in range(1_000):
            if not self.core.has_requests():
                break
            self.advance()
        assert not self.core.has_requests()
        assert self.core.advance() == ({}, False)

    def check(self):
        assert not self.core.has_unfinished_requests()
        assert not self.transcript.open_ids
        self.transcript.check(OracleModel.of_engine(self.core.info))
        for story in self.transcript.stories:
            assert story.finish_reason is FinishReason.LENGTH or story.aborted
            self.seen["cut short"] += story.aborted and bool(story.token_ids)
        stats = self.core.call_utility("get_stats")
        self.seen["preemptions"] += stats.num_preemptions
        assert stats.num_free_blocks == stats.num_blocks
        assert self.core.call_utility("collective_rpc", "get_request_ids") == [[]]


# -- one abort, at each moment in turn -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("oracle", "depth"),
    [
        ("plain", 1),
        ("plain", 3),
        ("feeds tokens", 2),
        ("feeds tokens", 4),
        ("out of order", 2),
        ("two phases", 3),
        ("sampled later", 3),
        ("sampled later and fed", 2),
    ],
)
def test_24_one_abort_at_each_moment(oracle, depth):
    seen: Counter[str] = Counter()
    for victim in ("long", "queued"):
        for moment in range(18):
            between, within = Bench(oracle, depth), Bench(oracle, depth)
            between.run([*[[]] * moment, [("abort", victim, UNKNOWN), ("abort", victim, victim)]])
            within.abort_at(moment + 0.5, victim, UNKNOWN)
            within.abort_at(moment + 0.75, victim, victim)
            within.run()
            seen += between.seen + within.seen
    assert min(seen[state] for state in ("RUNNING in flight", "WAITING", "unknown", "cut short")) > 0, seen


# -- everything at once ----------------------------------------------------------------------------------------------

NAMES = st.lists(st.sampled_from([*REQUESTS, UNKNOWN]), min_size=1, max_size=3)
CALLS = st.one_of(
    NAMES.map(lambda names: ("abort", *names)),
    NAMES.map(lambda names: ("abort", *names, *names)),
    st.tuples(st.just("add"), st.sampled_from(sorted(REQUESTS))),
    st.tuples(st.just("reset"), st.booleans()),
    st.sampled_from(
        [("pause",), ("pause", True), ("pause", False), ("resume",), ("leave", 0), ("leave", 1), ("leave", 9)]
    ),
)
ROUNDS = st.lists(st.lists(CALLS, max_size=3), min_size=3, max_size=20)
WITHIN = st.lists(st.tuples(st.integers(0, 30), NAMES), max_size=4)


def test_24_25_45_aborts_at_any_moment_among_pauses_and_resets():
    seen: Counter[str] = Counter()

    @settings(
        max_examples=100,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(
        oracle=st.sampled_from(sorted(ORACLES)),
        depth=st.integers(1, 4),
        num_kv_blocks=st.sampled_from((7, 12, 40)),
        rounds=ROUNDS,
        within=WITHIN,
    )
    def hold(oracle, depth, num_kv_blocks, rounds, within):
        bench = Bench(oracle, depth, num_kv_blocks)
        for step, names in within:
            bench.abort_at(step + 0.5, *names)
        bench.run(rounds)
        seen.update(bench.seen)

    hold()
    wanted = ("RUNNING in flight", "RUNNING", "WAITING", "unknown", "cut short", "preemptions", "paused in flight",
              "at rest", "reset while paused")  # fmt: skip
    assert min(seen[what] for what in wanted) > 2, seen
