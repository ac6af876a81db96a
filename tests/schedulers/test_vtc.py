"""`vtc`: what two backlogged tenants are served differs by no more than the paper's bound; idle earns no credit."""

from random import Random

import pytest

from enginecore.request import Request
from enginecore_schedulers.vtc import TIDY, Vtc
from tests.schedulers.lab import Trial, job
from tests.schedulers.workloads import STEP
from tests.scheduling.harnesses import make_harness, make_request

NUM_BLOCKS, BLOCK_SIZE, LONGEST_PROMPT = 100, 16, 200
LIMITS = {"step_time": STEP, "max_num_seqs": 16, "num_kv_blocks": NUM_BLOCKS, "block_size": BLOCK_SIZE,
          "max_num_batched_tokens": 256}  # fmt: skip


def as_request(message, number):
    return Request(message, message.params, arrival_number=number, arrival_time=float(number), max_model_len=64)


def backlog():
    """Two tenants that ask for more than they can get from the start, one of them for much more, in longer requests."""
    random = Random(5)
    modest = [job(f"a{n}", 0.0, random.randrange(10, 60), random.randrange(5, 60), tenant="a") for n in range(200)]
    greedy = [job(f"b{n}", 0.0, random.randrange(100, LONGEST_PROMPT), random.randrange(20, 60), tenant="b")
              for n in range(120)]  # fmt: skip
    return [*greedy, *modest]


def served(trial, prompt_weight, output_weight, shares):
    """What each tenant was served by the end of each step in which both have requests waiting."""
    tenants = {each.name: each.request.tenant for each in trial.of()}
    weights = {tenant: shares.get(tenant, 1.0) for tenant in tenants.values()}
    totals, history, last = dict.fromkeys(weights, 0.0), [], dict.fromkeys(weights, 0)
    for number, step in enumerate(trial.steps):
        for new in step.plan.new_requests:
            tenant = tenants[new.request_id]
            last[tenant] = number
            totals[tenant] += 0 if new.resumed else prompt_weight * new.num_prompt_tokens / weights[tenant]
        for name, tokens in zip(step.output.request_ids, step.output.sampled_token_ids, strict=True):
            totals[tenants[name]] += output_weight * len(tokens) / weights[tenants[name]]
        history.append(dict(totals))
    return history[: min(last.values())]


def range_of_difference(policy, prompt_weight=1.0, output_weight=2.0, shares=None, settings=None):
    trial = Trial(policy, backlog(), policy_settings=settings, **LIMITS)
    history = served(trial, prompt_weight, output_weight, shares or {})
    assert len(history) > 60
    differences = [totals["a"] - totals["b"] for totals in history]
    return max(differences) - min(differences), history[-1]


def bound(prompt_weight=1.0, output_weight=2.0):
    """As in the paper, where an output token counts no less than one of a prompt; the running batch holds both."""
    return 2 * max(prompt_weight * LONGEST_PROMPT, max(prompt_weight, output_weight) * NUM_BLOCKS * BLOCK_SIZE)


def test_two_backlogged_tenants_are_served_alike_within_the_bound():
    spread, totals = range_of_difference("vtc")
    assert spread <= bound()
    assert 0.8 < totals["a"] / totals["b"] < 1.25
    assert range_of_difference("fcfs")[0] > 2 * bound()


@pytest.mark.parametrize("shares", [{"a": 3.0}, {"a": 0.5, "b": 2.0}])
def test_shares_divide_what_is_served(shares):
    spread, totals = range_of_difference("vtc", shares=shares, settings={"shares": shares})
    assert spread <= bound() / min([*shares.values(), 1.0])
    assert 0.6 < totals["a"] / totals["b"] < 1.6


@pytest.mark.parametrize("weights", [(1.0, 20.0), (5.0, 1.0)])
def test_weights_say_what_counts(weights):
    prompt_weight, output_weight = weights
    settings = {"prompt_weight": prompt_weight, "output_weight": output_weight}
    spread, totals = range_of_difference("vtc", prompt_weight, output_weight, settings=settings)
    assert spread <= bound(*weights)
    assert 0.8 < totals["a"] / totals["b"] < 1.25
    other, _ = range_of_difference("vtc", prompt_weight, output_weight)
    assert spread != other


def test_a_tenant_that_returns_has_no_credit_for_the_time_it_was_away():
    steady = [job(f"steady{n}", 0.0, 20, 20, tenant="steady") for n in range(120)]
    returning = [job(f"returning{n}", 4.0, 20, 20, tenant="returning") for n in range(60)]
    trial = Trial("vtc", [*steady, *returning], step_time=STEP, max_num_seqs=4)
    after = [each for each in trial.of() if each.token_times[0] > 4.0 + STEP]
    order = [each.request.tenant for each in sorted(after, key=lambda each: each.token_times[0])]
    assert 14 <= order[:32].count("returning") <= 18  # half of them, not all


def test_a_flood_of_one_tenant_does_not_delay_another():
    flood = [job(f"flood{n}", 0.0, 20, 20, tenant="flood") for n in range(200)]
    trickle = [job(f"trickle{n}", 0.5 * n, 20, 5, tenant="trickle") for n in range(10)]
    ttft = {policy: max(each.ttft for each in Trial(policy, [*flood, *trickle], step_time=STEP, max_num_seqs=4)
                        .of("trickle")) for policy in ("fcfs", "vtc")}  # fmt: skip
    assert ttft["vtc"] <= 22 * STEP  # the next seat is its own
    assert ttft["fcfs"] > 5.0


def test_counters_of_tenants_that_are_gone_are_forgotten():
    policy = Vtc()
    harness = make_harness(policy=policy, num_blocks=64, max_num_seqs=8)
    for n in range(3 * TIDY):
        request = make_request(f"r{n}", 3, max_tokens=1)
        request.tenant = f"tenant{n}"
        harness.scheduler.add_request(as_request(request, n))
        if n % 50 == 49:
            while harness.scheduler.has_requests():
                plan = harness.scheduler.schedule()
                running = harness.executor.execute_model(plan)
                harness.clock.wait(running)
                output = running.result()
                assert output is not None
                harness.scheduler.update_from_output(plan, output)
    assert len(policy._counters.served) <= TIDY + 50
    assert policy._charged == {}
