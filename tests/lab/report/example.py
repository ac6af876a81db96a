"""A comparison and its runs, as the lab would make them, from an engine of a few lines."""

import random
from statistics import fmean

from enginecore.messages import EngineInfo, FinishReason
from enginecore_lab.comparison import (
    ArmComparison,
    ArmSummary,
    Comparison,
    Interval,
    MetricComparison,
    VerdictName,
)
from enginecore_lab.interfaces import Direction
from enginecore_lab.run import RequestRun, Run, StepSeries
from enginecore_lab.workload import Workload, WorkloadRequest

NUM_BLOCKS = 600
BLOCK_SIZE = 16


def make_workload(num_requests=120, seed=0, tenants=("alpha", "beta", "gamma"), name="three tenants"):
    draw = random.Random(seed)
    requests, now = [], 0.0
    for index in range(num_requests):
        now += draw.expovariate(8.5)
        requests.append(
            WorkloadRequest(
                request_id=f"request-{index}",
                arrival=now,
                num_prompt_tokens=min(int(draw.lognormvariate(6, 1)) + 1, 4000),
                num_output_tokens=min(int(draw.lognormvariate(3.5, 0.8)) + 1, 1000),
                tenant=draw.choice(tenants),
            )
        )
    return Workload(name=name, requests=requests)


def make_info():
    return EngineInfo(
        model="toy",
        max_model_len=8192,
        vocab_size=100,
        eos_token_ids=[],
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        max_num_seqs=32,
        max_num_batched_tokens=2048,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        max_concurrent_batches=1,
        components={"scheduler": "fcfs", "executor": "simulated"},
        seed=0,
    )


def add_step(steps, started, settled, **columns):
    """One more settled step; columns that are not named are 0."""
    values = {"step": len(steps.step), "started": started, "settled": settled} | columns
    for column in StepSeries.__slots__:
        getattr(steps, column).append(values.get(column, 0))


class ToyEngine:
    """Continuous batching with chunks of a fixed size; preempts the newest request when blocks run out."""

    def __init__(self, workload, *, chunk, shortest_first=False):
        self.requests = [RequestRun(request=each, arrival=each.arrival) for each in workload.requests]
        self.steps = StepSeries()
        self.now = 0.0
        self._chunk = chunk
        self._shortest_first = shortest_first
        self._waiting = []
        self._running = []
        self._computed = {}
        self._step = 0

    def run(self):
        pending = list(self.requests)
        while pending or self._waiting or self._running:
            if not self._waiting and not self._running:
                self.now = max(self.now, pending[0].arrival)
            while pending and pending[0].arrival <= self.now:
                self._waiting.append(pending.pop(0))
            self._one_step()

    def _one_step(self):
        if self._shortest_first:
            self._waiting.sort(key=lambda each: each.request.num_output_tokens)
        while self._waiting and len(self._running) < 32 and self._free() > self._needs(self._waiting[0]):
            each = self._waiting.pop(0)
            if each.first_scheduled is None:
                each.first_scheduled = self.now
            self._computed[each.request.request_id] = 0
            self._running.append(each)
        while self._free() < len(self._running) and len(self._running) > 1:
            self._preempt(self._running.pop())
        budget, decodes, pieces = self._chunk, [], []
        for each in self._running:
            left = self._length(each) - self._computed[each.request.request_id]
            if left <= 1:
                decodes.append(each)
            elif budget > 0:
                tokens = min(left, budget)
                budget -= tokens
                pieces.append((each, tokens))
        self._settle(decodes, pieces)

    def _settle(self, decodes, pieces):
        started, prefill = self.now, sum(tokens for _, tokens in pieces)
        self.now += 0.012 + 0.00004 * prefill + 0.0003 * len(decodes)
        for each, tokens in pieces:
            self._computed[each.request.request_id] += tokens
            each.pieces.append((self._step, tokens))
            if self._computed[each.request.request_id] == self._length(each):
                self._emit(each)
        for each in decodes:
            self._computed[each.request.request_id] += 1
            self._emit(each)
        add_step(
            self.steps,
            started,
            self.now,
            num_decodes=len(decodes),
            num_prefill_tokens=prefill,
            num_requests=len(decodes) + len(pieces),
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            num_free_blocks=max(self._free(), 0),
        )
        self._step += 1

    def _emit(self, each):
        each.token_times.append(self.now)
        if len(each.token_times) >= each.request.num_output_tokens:
            each.ended, each.finish_reason = self.now, FinishReason.STOP
            self._running.remove(each)

    def _preempt(self, each):
        each.num_preemptions += 1
        each.preempted_at.append(self.now)
        self._waiting.insert(0, each)

    def _length(self, each):
        return each.request.num_prompt_tokens + len(each.token_times)

    def _needs(self, each):
        return -(-self._length(each) // BLOCK_SIZE)

    def _free(self):
        return NUM_BLOCKS - sum(map(self._needs, self._running))


def make_run(workload, *, chunk=512, shortest_first=False, failures=0):
    engine = ToyEngine(workload, chunk=chunk, shortest_first=shortest_first)
    engine.run()
    for each in engine.requests[5 : 5 + failures]:
        each.finish_reason, each.error = FinishReason.ERROR, "out of <memory>"
        each.ended = each.token_times[0]
        del each.token_times[1:]
        each.pieces = [piece for piece in each.pieces if engine.steps.settled[piece[0]] <= each.ended]
    return Run(
        workload=workload,
        info=make_info(),
        settings={"scheduler": {"use": "sjf" if shortest_first else "fcfs"}},
        requests=engine.requests,
        steps=engine.steps,
        virtual=True,
        wall_seconds=0.1,
    )


def make_metric(
    name,
    verdict: VerdictName,
    *,
    before,
    ratio,
    unit="s",
    direction: Direction = "lower",
    replicates=20,
    interval=True,
    width=0.03,
):
    draw = random.Random(name)
    baseline = [before * draw.uniform(0.85, 1.15) for _ in range(replicates)]
    candidate = [value * ratio * draw.uniform(1 - width, 1 + width) for value in baseline]
    difference, size = fmean(candidate) - fmean(baseline), fmean(baseline)
    half = width * size
    return MetricComparison(
        metric=name,
        unit=unit,
        direction=direction,
        baseline=baseline,
        candidate=candidate,
        difference=difference,
        relative=difference / size if size else float("nan"),
        interval=Interval(low=difference - half, high=difference + half, level=0.95, method="paired t")
        if interval
        else None,
        p_value=0.0004 if interval else None,
        margin=0.02 * size,
        verdict=verdict,
        reason=f"{name}: the interval lies where a {verdict} one lies, beside a margin of 2 %.",
    )


def make_arm_comparison(arm, ratio=0.82):
    return ArmComparison(
        arm=arm,
        primary=make_metric("ttft_mean", "better", before=0.4, ratio=ratio),
        secondary=[
            make_metric("ttft_p99", "worse", before=2.4, ratio=1.9, width=0.2),
            make_metric("itl_p99", "equivalent", before=0.045, ratio=1.003, width=0.008),
            make_metric("e2e_mean", "undecided", before=3.1, ratio=0.99, width=0.06),
            make_metric("output_throughput", "better", before=2084, ratio=1.05, unit="tokens/s", direction="higher"),
            make_metric("slo_attainment", "undecided", before=0.93, ratio=1.01, unit="", direction="higher"),
            make_metric("queue_delay_p99", "refused", before=1.4, ratio=5.0, interval=False),
            make_metric("preemptions", "undecided", before=0.0, ratio=1.0, unit=""),
        ],
    )


def make_comparison(arms=("fcfs", "sjf"), *, name="shortest job first", warnings=(), sentence=None, replicates=20):
    comparisons = [make_arm_comparison(arm, 0.82 + 0.1 * place) for place, arm in enumerate(arms[1:])]
    return Comparison(
        name=name,
        sentence=sentence or f"{arms[-1]} is better than {arms[0]}: ttft_mean is 18 % lower (15 % to 21 %).",
        loop="open",
        virtual=True,
        replicates=replicates,
        seed=7,
        arms=[
            ArmSummary(
                name=arm,
                settings={"model": "toy", "scheduler": {"use": arm, "max_num_seqs": 32}, "seed": 0},
                info={"num_blocks": NUM_BLOCKS, "components": {"scheduler": arm}},
                metrics={"ttft_mean": [0.4] * replicates, "e2e_mean": [3.1] * replicates},
                saturated=place,
            )
            for place, arm in enumerate(arms)
        ],
        comparisons=comparisons,
        noise_floor=0.0,
        warnings=list(warnings),
        experiment={"name": name, "seed": 7, "workload": {"kind": "synthetic", "rate": 8.5}},
        workload_hashes=[f"{place:064x}" for place in range(replicates)],
        versions={"python": "3.11.2", "enginecore": "0.1.0"},
        command="enginecore ab experiment.toml --seed 7",
        created="2025-01-02T03:04:05+00:00",
    )


def make_runs(arms=("fcfs", "sjf"), **workload):
    made = make_workload(**workload)
    return {arm: make_run(made, shortest_first=place > 0, failures=2 * place) for place, arm in enumerate(arms)}
