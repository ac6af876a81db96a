"""`fcfs`: arrival order, and a gap between tokens that the budget bounds, whatever prompts arrive."""

from tests.schedulers.lab import Trial, job

STEP, TOKEN, BUDGET = 0.02, 0.001, 64


def test_first_tokens_come_in_order_of_arrival():
    jobs = [job(f"j{n}", n * 0.01, 20 + 37 * n % 150, 10 + 13 * n % 40) for n in range(24)]
    trial = Trial("fcfs", jobs, step_time=STEP, token_time=TOKEN, max_num_seqs=4, max_num_batched_tokens=BUDGET)
    order = sorted(trial.of(), key=lambda each: each.token_times[0])
    assert [each.name for each in order] == [f"j{n}" for n in range(24)]


def test_the_budget_bounds_the_gap_between_tokens_whatever_prompts_arrive():
    jobs = [job(f"stream{n}", 0.0, 10, 150) for n in range(4)]
    jobs += [job(f"prompt{n}", 0.5 + 0.1 * n, 600, 1) for n in range(8)]
    trial = Trial("fcfs", jobs, step_time=STEP, token_time=TOKEN, max_num_seqs=16, max_num_batched_tokens=BUDGET)
    assert max(each.largest_gap for each in trial.of("stream")) <= STEP + TOKEN * BUDGET + 1e-9
    assert sum(step.plan.total_num_scheduled_tokens == BUDGET for step in trial.steps) >= 70  # prompts fill the rest


def test_a_cap_on_pieces_lets_a_short_prompt_past_a_long_one():
    jobs = [job("long", 0.0, 2000, 1), job("short", 0.01, 10, 1)]
    ttft = {}
    for chunk in (None, 32):
        trial = Trial("fcfs", jobs, step_time=STEP, max_num_batched_tokens=BUDGET,
                      policy_settings={"prefill_chunk_size": chunk})  # fmt: skip
        ttft[chunk] = trial["short"].ttft
    assert ttft[32] <= 2 * STEP
    assert ttft[None] >= 2000 // BUDGET * STEP
