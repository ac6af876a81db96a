"""`prefill_first`: decodes stall while prompts arrive, which is what pieces of prompts are for."""

from tests.schedulers.lab import Trial, job

STEP, TOKEN, BUDGET = 0.02, 0.0005, 256
LIMITS = {"step_time": STEP, "token_time": TOKEN, "max_num_seqs": 32, "max_num_batched_tokens": BUDGET}


def rush():
    """Four streams, and a burst of prompts that arrive while they run."""
    streams = [job(f"stream{n}", 0.0, 10, 100) for n in range(4)]
    return [*streams, *(job(f"prompt{n}", 0.5 + 0.001 * n, 200, 4) for n in range(12))]


def test_decodes_stall_behind_prompts_and_first_tokens_come_sooner():
    stalled, smooth = Trial("prefill_first", rush(), **LIMITS), Trial("fcfs", rush(), **LIMITS)
    worst = max(each.largest_gap for each in stalled.of("stream"))
    assert worst >= 12 * (STEP + TOKEN * 200)  # all prompts, one a step
    assert max(each.largest_gap for each in smooth.of("stream")) <= STEP + TOKEN * BUDGET + 1e-9
    assert worst > 8 * max(each.largest_gap for each in smooth.of("stream"))
    assert stalled.mean_ttft("prompt") < smooth.mean_ttft("prompt") * 1.25


def test_prompts_go_whole_and_without_decodes_beside_them():
    trial = Trial("prefill_first", rush(), **LIMITS)
    known = {f"stream{n}": 10 for n in range(4)} | {f"prompt{n}": 200 for n in range(12)}
    for step in trial.steps:
        counts = step.plan.num_scheduled_tokens
        prompts = [name for name, count in counts.items() if count > 1]
        assert all(counts[name] == known[name] for name in prompts)
        assert not prompts or len(prompts) == len(counts)


def test_a_prompt_longer_than_a_step_takes_several():
    trial = Trial("prefill_first", [job("long", 0.0, 600, 2), job("next", 0.0, 100, 2)], **LIMITS)
    rows = [dict(step.plan.num_scheduled_tokens) for step in trial.steps if step.plan.num_scheduled_tokens]
    assert rows[:3] == [{"long": 256}, {"long": 256}, {"long": 88, "next": 100}]
