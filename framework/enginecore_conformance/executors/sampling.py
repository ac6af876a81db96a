"""Checks: how tokens are chosen."""

from enginecore.messages import PositionLogprobs
from enginecore.sampling import SamplingParams
from enginecore_conformance.checks import Violation, check
from enginecore_conformance.executors.answers import expect_tokens
from enginecore_conformance.executors.bench import ExecutorBench
from enginecore_conformance.executors.planner import GREEDY

COUNT = 10


def seeded(seed: int, **fields: object) -> SamplingParams:
    """Random sampling."""
    given = {"temperature": 1.0, "max_tokens": 100, "ignore_eos": True, "detokenize": False, "seed": seed, **fields}
    return SamplingParams(**given)  # type: ignore[arg-type]


@check("executor", "content")
def seeds_repeat(bench: ExecutorBench) -> None:
    """The same seed gives the same tokens, alone or beside others with seeds of their own, in chunks, and after a
    preemption.
    """
    prompt, params = bench.prompt("seed", 18), seeded(17, temperature=2.0, top_p=0.95, top_k=50)
    right = bench.alone(prompt, COUNT, params)
    other, request = bench.add_request(bench.prompt("crowd", 6), seeded(99)), bench.add_request(prompt, params)
    twin, greedy = bench.add_request(prompt, seeded(98)), bench.add_request(prompt)
    bench.step({other: other.left, twin: 18})
    bench.step({greedy: 18, other: 1, request: 10, twin: 1})
    bench.step([other, request, greedy])
    bench.step([request, twin])
    expect_tokens(request.output, right[:2], "a seeded request among others")
    bench.planner.preempt(request)
    bench.step([other])
    expect_tokens(bench.generate(request, COUNT), right, "a seeded request after a preemption")


@check("executor", "content")
def seeds_make_a_difference(bench: ExecutorBench) -> None:
    """With another seed come other tokens, and with the same one not the same token over and over."""
    prompt = bench.prompt("difference", 11)
    rows = [bench.alone(prompt, COUNT, seeded(seed, temperature=2.0)) for seed in (1, 2, 3)]
    if rows[0] == rows[1] == rows[2]:
        raise Violation(f"seeds 1, 2 and 3 at temperature 2 all give {rows[0]}", "different tokens")


@check("executor", "content")
def greedy_ignores_the_seed(bench: ExecutorBench) -> None:
    """At temperature 0 the tokens are the same, whatever the seed."""
    prompt = bench.prompt("greedy", 13)
    right = bench.alone(prompt, COUNT)
    for seed in (1, -1, (1 << 63) - 1):
        expect_tokens(bench.alone(prompt, COUNT, seeded(seed, temperature=0)), right, f"greedy with seed {seed}")


@check("executor", "content")
def min_tokens_keeps_the_end_away(bench: ExecutorBench) -> None:
    """Before `min_tokens` tokens neither EOS nor a stop token is sampled, and from then on they may be."""
    prompt = bench.prompt("min_tokens", 14)
    likely = bench.alone(prompt, 4)
    params = seeded(0, temperature=0, min_tokens=4, stop_token_ids=tuple(likely), ignore_eos=False)
    forbidden = {*likely, *bench.executor.model_info.eos_token_ids}
    tokens = bench.alone(prompt, 4, params)
    if early := forbidden.intersection(tokens):
        raise Violation(f"{tokens} with {sorted(early)} among the first 4", "no EOS and no stop token among them")
    ending = seeded(0, temperature=0, min_tokens=0, stop_token_ids=tuple(likely))
    expect_tokens(bench.alone(prompt, 4, ending), likely, "with stop tokens and min_tokens = 0")


@check("executor", "content")
def logprobs_come_when_they_are_asked_for(bench: ExecutorBench) -> None:
    """`logprobs` of k gives for each token an entry of k + 1: the sampled token, then the likeliest in order; a request
    that asks for none gets none; the tokens are the same.
    """
    prompt = bench.prompt("logprobs", 15)
    right = bench.alone(prompt, 4)
    asking = bench.add_request(prompt, seeded(0, temperature=0, logprobs=3))
    silent = bench.add_request(prompt, GREEDY)
    bench.generate_all([asking, silent], 4)
    expect_tokens(asking.output, right, "with logprobs")
    if silent.logprobs or len(asking.logprobs) != 4:
        raise Violation(
            f"{len(asking.logprobs)} entries for 4 tokens, {len(silent.logprobs)} where none was asked for",
            "4 and none",
        )
    for token, entry in zip(asking.output, asking.logprobs, strict=True):
        if not isinstance(entry, PositionLogprobs):
            raise Violation(f"{entry!r:.200}", "PositionLogprobs")
        _check_entry(token, entry)


def _check_entry(token: int, entry: PositionLogprobs) -> None:
    likely = entry.logprobs[1:]
    if len(entry.token_ids) != 4 or len(entry.logprobs) != 4 or entry.token_ids[0] != token:
        raise Violation(f"{entry!r} for token {token}", "the sampled token and 3 more, each with its log-probability")
    if likely != sorted(likely, reverse=True) or max(entry.logprobs) > 1e-6:
        raise Violation(f"log-probabilities {entry.logprobs}", "none above 0, the likeliest in falling order")
    if entry.sampled_rank != 1:
        raise Violation(f"rank {entry.sampled_rank} for a greedy token", "1: it is the likeliest")
