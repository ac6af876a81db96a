"""Drawn workloads as a whole: what is drawn from which stream, prefixes, sessions, tenants, mixes."""

from collections import Counter

import pytest

from enginecore.errors import ConfigurationError
from enginecore_lab.workloads import read_workload, workload_hash
from enginecore_lab.workloads.loaders import save_jsonl
from tests.lab.workloads.making import POISSON, asked, synthetic, workload


def test_the_same_seed_and_replicate_make_the_same_workload():
    table = {"arrivals": POISSON, "prompt": {"kind": "geometric", "mean": 50}, "tenants": [{"name": "a"}]}
    hashes = {(seed, n): workload_hash(synthetic(seed, n, **table)) for seed in (0, 1) for n in (0, 1)}
    assert len(set(hashes.values())) == 4
    assert hashes[1, 1] == workload_hash(synthetic(1, 1, **table))


def test_what_is_drawn_for_one_purpose_shifts_nothing_else():
    plain = synthetic(
        arrivals=POISSON, prompt={"kind": "geometric", "mean": 50}, output={"kind": "geometric", "mean": 9}
    )
    other = synthetic(
        arrivals=POISSON,
        prompt={"kind": "lognormal", "mean": 50, "sigma": 1},
        output={"kind": "geometric", "mean": 9},
        tenants=[{"name": "a"}, {"name": "b"}],
        prefix={"levels": [{"branches": 3, "tokens": 32}]},
    )
    assert [r.arrival for r in plain.requests] == [r.arrival for r in other.requests]
    assert [r.num_output_tokens for r in plain.requests] == [r.num_output_tokens for r in other.requests]
    assert [r.num_prompt_tokens for r in plain.requests] != [r.num_prompt_tokens for r in other.requests]


def test_a_shorter_workload_is_the_beginning_of_a_longer_one():
    short, long = (synthetic(num_requests=n, arrivals=POISSON) for n in (10, 20))
    assert long.requests[:10] == short.requests


def test_without_shared_content_there_are_no_ids():
    made = synthetic()
    assert made.block_size == 0
    assert not any(each.hash_ids for each in made.requests)
    assert (made.loop, made.concurrency) == ("open", 0)


def test_prefixes_form_a_tree():
    levels = [{"branches": 2, "tokens": 32}, {"branches": 3, "tokens": 16}]
    made = synthetic(num_requests=600, prefix={"levels": levels}, prompt={"kind": "constant", "tokens": 10})
    assert {each.num_prompt_tokens for each in made.requests} == {58}
    paths = Counter(each.hash_ids for each in made.requests)
    assert len(paths) == 6
    assert all(len(path) == 3 for path in paths)
    assert len({path[:2] for path in paths}) == 2
    assert len({hash_id for path in paths for hash_id in path}) == 2 * 2 + 6
    assert min(paths.values()) > 60


def test_a_skewed_tree_has_favourites():
    tree = {"levels": [{"branches": 4, "tokens": 16}], "skew": 1.0}
    counts = Counter(each.hash_ids for each in synthetic(num_requests=2000, prefix=tree).requests)
    shares = [count / 2000 for _, count in counts.most_common()]
    assert shares == pytest.approx([0.48, 0.24, 0.16, 0.12], abs=0.03)


def test_sessions_say_again_what_was_said_before():
    made = synthetic(
        arrivals=POISSON,
        prompt={"kind": "uniform", "low": 5, "high": 40},
        output={"kind": "uniform", "low": 1, "high": 20},
        sessions={"turns": {"kind": "uniform", "low": 1, "high": 5}, "think_time": {"kind": "exponential", "mean": 4}},
        prefix={"levels": [{"branches": 1, "tokens": 16}]},
    )
    assert (made.loop, made.block_size, len(made.requests)) == ("partly open", 16, 100)
    before = None
    starts = []
    for each in made.requests:
        total = each.num_prompt_tokens + each.num_output_tokens
        assert len(each.hash_ids) == -(-total // 16)
        if each.turn:
            assert before is not None
            assert (each.session, each.turn, each.after) == (before.session, before.turn + 1, before.request_id)
            assert each.hash_ids[: len(before.hash_ids)] == before.hash_ids
            assert 5 <= each.num_prompt_tokens - before.num_prompt_tokens - before.num_output_tokens <= 40
            assert (each.arrival, each.delay > 0) == (0.0, True)
        else:
            assert (each.after, each.delay) == (None, 0.0)
            starts.append(each.arrival)
        before = each
    assert starts == sorted(starts)
    assert len(starts) < 60
    own = [set(each.hash_ids[1:]) for each in made.requests if not each.turn]
    assert sum(map(len, own)) == len(set().union(*own))
    assert len({each.hash_ids[0] for each in made.requests}) == 1


def test_sessions_whose_answers_are_not_kept_tell_of_prompts_only():
    made = synthetic(sessions={"share_outputs": False}, prompt={"kind": "constant", "tokens": 16})
    assert all(len(each.hash_ids) == -(-each.num_prompt_tokens // 16) for each in made.requests)


def test_sessions_end_before_they_outgrow_the_context():
    made = synthetic(
        num_requests=50,
        sessions={"turns": {"kind": "constant", "tokens": 9}, "max_context": 100},
        prompt={"kind": "constant", "tokens": 30},
        output={"kind": "constant", "tokens": 10},
    )
    assert [each.turn for each in made.requests] == [0, 1] * 25
    assert max(each.num_prompt_tokens + each.num_output_tokens for each in made.requests) == 80


def test_a_requests_own_terms_stay_where_its_tenant_says_none(tmp_path):
    save_jsonl(workload(asked("r", priority=3, ttft_slo=0.5, tpot_slo=0.1)), tmp_path / "own.jsonl")
    tenants = [{"name": "t", "ttft_slo": 2.0}]
    table = {"kind": "jsonl", "path": str(tmp_path / "own.jsonl"), "tenants": tenants}
    (made,) = read_workload(table).make(0, 0).requests
    assert (made.tenant, made.priority, made.ttft_slo, made.tpot_slo) == ("t", 3, 2.0, 0.1)


def test_tenants_get_their_shares_and_a_session_has_one():
    tenants = [{"name": "big", "weight": 3}, {"name": "small", "priority": -1, "ttft_slo": 0.5, "tpot_slo": 0.1}]
    made = synthetic(num_requests=2000, tenants=tenants)
    counts = Counter((each.tenant, each.priority, each.ttft_slo, each.tpot_slo) for each in made.requests)
    assert counts["big", 0, None, None] == pytest.approx(1500, abs=80)
    assert counts["small", -1, 0.5, 0.1] == 2000 - counts["big", 0, None, None]
    sessions = synthetic(sessions={}, tenants=tenants)
    by_session = {(each.session, each.tenant) for each in sessions.requests}
    assert len(by_session) == len({each.session for each in sessions.requests})


def test_lengths_may_come_from_a_trace_in_pairs(tmp_path):
    path = tmp_path / "small.jsonl"
    path.write_text(
        '{"id": "a", "arrival_s": 0, "prompt_tokens": 10, "output_tokens": 1}\n'
        '{"id": "b", "arrival_s": 1, "prompt_tokens": 20, "output_tokens": 2}\n'
    )
    made = synthetic(lengths_from={"kind": "jsonl", "path": str(path)})
    counts = Counter((each.num_prompt_tokens, each.num_output_tokens) for each in made.requests)
    assert set(counts) == {(10, 1), (20, 2)}
    assert min(counts.values()) > 30


def test_a_closed_loop():
    made = synthetic(closed={"concurrency": 8, "think_time": 1.5})
    assert (made.loop, made.concurrency, made.think_time) == ("closed", 8, 1.5)
    with pytest.raises(ConfigurationError, match="turns wait for one another: it cannot be sent in a closed loop"):
        synthetic(sessions={}, closed={"concurrency": 8})


def test_rates():
    slow, fast = synthetic(arrivals=POISSON), synthetic(arrivals=POISSON, rate_scale=4)
    assert [each.arrival for each in fast.requests] == [each.arrival / 4 for each in slow.requests]
    exact = synthetic(arrivals=POISSON, rate=5)
    assert 99 / (exact.requests[-1].arrival - exact.requests[0].arrival) == pytest.approx(5, rel=1e-12)
    with pytest.raises(ConfigurationError, match="has no rate: 100 requests arrive by themselves, all at once"):
        synthetic(rate=5)


def test_a_mix_has_a_part_for_each_tenant():
    def part(name, rate, tokens):
        return {
            "kind": "synthetic",
            "num_requests": 50,
            "arrivals": {"kind": "constant", "rate": rate},
            "prompt": {"kind": "constant", "tokens": tokens},
            "prefix": {"levels": [{"branches": 1, "tokens": 16}]},
            "tenants": [{"name": name}],
        }

    made = read_workload({"kind": "mix", "parts": [part("slow", 1, 100), part("fast", 3, 10)]}).make(0, 0)
    assert len(made.requests) == 100
    assert [each.request_id for each in made.requests[:5]] == ["0.0", "1.0", "1.1", "1.2", "0.1"]
    assert Counter((each.tenant, each.num_prompt_tokens) for each in made.requests) == {
        ("slow", 116): 50,
        ("fast", 26): 50,
    }
    by_tenant = {(each.tenant, each.hash_ids) for each in made.requests}
    assert len(by_tenant) == len({hash_ids for _, hash_ids in by_tenant}) == 2


def test_parts_of_a_mix_are_drawn_apart():
    part = {"kind": "synthetic", "num_requests": 20, "arrivals": POISSON}
    made = read_workload({"kind": "mix", "parts": [part, part]}).make(0, 0)
    arrivals = {n: [r.arrival for r in made.requests if r.request_id.startswith(n)] for n in "01"}
    assert not set(arrivals["0"]) & set(arrivals["1"])


def test_sessions_in_a_mix_stay_together():
    part = {"kind": "synthetic", "num_requests": 20, "arrivals": POISSON, "sessions": {}}
    made = read_workload({"kind": "mix", "parts": [part, {**part, "sessions": None}]}).make(0, 0)
    assert made.loop == "partly open"
    known = set()
    for each in made.requests:
        assert each.after is None or each.after in known
        known.add(each.request_id)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            [{"kind": "synthetic", "num_requests": 2, "closed": {"concurrency": 1}}],
            "a closed loop cannot be a part of something larger: 'synthetic' is one",
        ),
        (
            [{"kind": "synthetic", "num_requests": 2, "sessions": {}, "block_size": size} for size in (16, 32)],
            r"blocks of one size, got \[16, 32\]",
        ),
    ],
)
def test_mixes_that_cannot_be_are_refused(parts, message):
    with pytest.raises(ConfigurationError, match=message):
        read_workload({"kind": "mix", "parts": parts}).make(0, 0)
