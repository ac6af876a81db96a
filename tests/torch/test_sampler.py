"""Sampling: what may be drawn, how often, and what a draw depends on."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from enginecore_torch.sampler import SamplingBatch, sample, uniforms


def batch(
    rows,
    *,
    temperature: Any = 1.0,
    top_k: Any = 0,
    top_p: Any = 1.0,
    seed: Any = 0,
    index: Any = 0,
    banned=None,
    logprobs: Any = -1,
):
    """Parameters for `rows` rows; each may be one value for all or a list."""

    def column(value, dtype):
        return np.broadcast_to(np.asarray(value, dtype), (rows,)).copy()

    return SamplingBatch(
        temperature=column(temperature, np.float32),
        top_k=column(top_k, np.int64),
        top_p=column(top_p, np.float32),
        seed=column(seed, np.uint64),
        index=column(index, np.uint64),
        banned=banned or {},
        num_logprobs=column(logprobs, np.int64),
    )


def many_draws(logits, count=20_000, **params):
    """Frequencies of tokens over `count` output indices."""
    rows = torch.tensor(logits).expand(count, -1).clone()
    tokens = sample(rows, batch(count, index=np.arange(count), **params)).token_ids
    return np.bincount(tokens, minlength=len(logits)) / count


def softmax(logits, temperature=1.0):
    return torch.tensor(logits, dtype=torch.float64).div(temperature).softmax(-1).numpy()


LOGITS = [2.0, 1.0, 0.0, 1.5, -1.0, -20.0, 0.5]


# -- greedy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_greedy_takes_the_likeliest_and_the_first_of_equals(dtype):
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0], [5.0, -1.0, 2.0, 0.0]], dtype=dtype)
    assert sample(logits.clone(), None).token_ids == [1, 0]
    assert sample(logits, batch(2, temperature=0)).token_ids == [1, 0]


def test_greedy_and_random_rows_in_one_batch():
    logits = torch.tensor(LOGITS).repeat(4, 1)
    alone = sample(torch.tensor([LOGITS]), batch(1, seed=9, index=4)).token_ids
    mixed = sample(logits, batch(4, temperature=[0, 1, 0, 0], seed=9, index=4)).token_ids
    assert mixed == [0, alone[0], 0, 0]


# -- the distribution ------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_frequencies_follow_the_probabilities(temperature, seed):
    frequencies = many_draws(LOGITS, temperature=temperature, seed=seed)
    expected = softmax(LOGITS, temperature)
    assert np.abs(frequencies - expected).max() < 4 * math.sqrt(0.25 / 20_000)


def test_top_k_and_top_p_renormalise_what_is_left():
    assert many_draws(LOGITS, top_k=2)[[1, 2, 4, 5, 6]].sum() == 0
    kept = softmax([2.0, 1.5])
    assert np.abs(many_draws(LOGITS, top_k=2)[[0, 3]] - kept).max() < 0.015
    assert np.abs(many_draws(LOGITS, top_p=0.6)[[0, 3]] - kept).max() < 0.015


def test_uniforms_are_uniform_and_uncorrelated():
    index = np.arange(100_000, dtype=np.uint64)
    for seed in (0, 1, 2**64 - 1):
        drawn = uniforms(np.full_like(index, seed), index)
        assert drawn.min() >= 0
        assert drawn.max() < 1
        counts = np.histogram(drawn, 100, (0, 1))[0]
        assert ((counts - 1000) ** 2 / 1000).sum() < 160  # chi-square with 99 degrees of freedom: p = 1e-4
        assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.02
    neighbours = uniforms(index, np.zeros_like(index))  # seeds that follow one another
    assert ((np.histogram(neighbours, 100, (0, 1))[0] - 1000) ** 2 / 1000).sum() < 160


def test_uniforms_are_pinned():
    # tokens of a seed must not change from one version to the next
    seeds, indices = np.array([0, 0, 7], np.uint64), np.array([0, 1, 3], np.uint64)
    assert uniforms(seeds, indices).tolist() == [0.6524484863740322, 0.1663964394676608, 0.9579187413704255]


# -- brute force -----------------------------------------------------------------------------------


def allowed_by_hand(logits, temperature, top_k, top_p):
    """Token ids that may be drawn: top-k first, then the smallest set that reaches top_p; equals of the last stay."""
    scaled = logits.double() / temperature
    kept = scaled.clone()
    if 0 < top_k < len(logits):
        kept[kept < kept.sort(descending=True).values[top_k - 1]] = -torch.inf
    probabilities = kept.softmax(-1)
    total, least = 0.0, 0.0
    for value in probabilities.sort(descending=True).values.tolist():
        total, least = total + value, value
        if total >= top_p:
            break
    return {n for n, value in enumerate(probabilities.tolist()) if value >= least and value > 0}


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    top_k=st.sampled_from([0, -1, 1, 2, 5, 29, 30, 31, 1000]),
    top_p=st.sampled_from([1e-9, 0.1, 0.5, 0.9, 0.999, 1.0]),
    temperature=st.sampled_from([0.3, 1.0, 3.0]),
)
def test_draws_stay_within_top_k_and_top_p_and_reach_all_of_it(seed, top_k, top_p, temperature):
    logits = torch.randn(30, generator=torch.Generator().manual_seed(seed))
    params = batch(3000, temperature=temperature, top_k=top_k, top_p=top_p, index=np.arange(3000), seed=seed)
    drawn = set(sample(logits.expand(3000, -1).clone(), params).token_ids)
    allowed = allowed_by_hand(logits, temperature, top_k, top_p)
    assert drawn <= allowed
    common = (logits / temperature).softmax(-1) > 0.01
    assert {n for n in allowed if common[n]} <= drawn


@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.99])
def test_top_p_of_a_flat_distribution_over_a_large_vocabulary(top_p):
    """More tokens than are sorted at first are needed."""
    logits = torch.linspace(0, 0.5, 6000)
    probabilities = logits.double().softmax(-1)
    first = 6000 - (probabilities.flip(0).cumsum(0) < top_p).sum().item() - 1
    params = batch(1000, top_p=top_p, index=np.arange(1000))
    drawn = sample(logits.expand(1000, -1).clone(), params).token_ids
    assert first <= min(drawn) < first + 60
    assert max(drawn) > 5940


def test_rows_with_different_limits_do_not_mix():
    logits = torch.tensor(LOGITS).repeat(4, 1)
    params = batch(4, temperature=[1, 0.7, 1, 1], top_k=[1, 0, 3, 0], top_p=[1, 0.5, 1, 1], seed=[1, 2, 3, 4], index=8)
    together = sample(logits.clone(), params).token_ids
    for row in range(4):
        alone = batch(
            1, temperature=params.temperature[row], top_k=params.top_k[row], top_p=params.top_p[row],
            seed=params.seed[row], index=8,
        )  # fmt: skip
        assert sample(logits[:1].clone(), alone).token_ids == [together[row]]


# -- independence ----------------------------------------------------------------------------------


def test_a_draw_depends_on_seed_and_index_not_on_row_or_neighbours():
    """Field case 27: a request that resumes needs no state of random numbers, only the index of its token."""
    torch.manual_seed(0)
    logits = torch.randn(16, 5000)
    mine = logits[0].clone()
    expected = sample(mine[None].clone(), batch(1, seed=77, index=5)).token_ids[0]
    for row in (0, 7, 15):
        crowd = logits.roll(row, 0)
        seeds = np.arange(16, dtype=np.uint64)
        seeds[row] = 77
        temperatures = np.linspace(0, 2, 16)
        temperatures[row] = 1
        params = batch(
            16, temperature=temperatures, seed=seeds, index=5, top_k=[0 if n == row else n for n in range(16)]
        )
        assert sample(crowd, params).token_ids[row] == expected


# -- min_tokens, logprobs, errors ------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_banned_tokens_are_never_taken(temperature):
    logits = torch.tensor([[9.0, 8.0, 1.0, 0.0]]).repeat(50, 1)
    banned = {row: [0, 1] for row in range(25)}
    tokens = sample(logits, batch(50, temperature=temperature, index=np.arange(50), banned=banned)).token_ids
    assert not {0, 1} & set(tokens[:25])
    assert set(tokens[25:]) <= {0, 1}


def test_logprobs_are_those_of_the_model_whatever_is_banned_or_scaled():
    logits = torch.tensor([LOGITS, LOGITS, LOGITS])
    params = batch(3, temperature=[0, 0.5, 0], banned={0: [0]}, logprobs=[3, 0, -1], top_k=1)
    found = sample(logits.clone(), params)
    expected = torch.tensor(LOGITS).log_softmax(-1)
    assert sorted(found.logprobs) == [0, 1]
    assert found.logprobs[0].token_ids == [3, 0, 3, 1]  # 0 was banned, 3 taken; the likeliest are 0, 3, 1
    assert found.logprobs[0].sampled_rank == 2
    torch.testing.assert_close(torch.tensor(found.logprobs[0].logprobs), expected[[3, 0, 3, 1]])
    assert found.logprobs[1].token_ids == [0]
    assert found.logprobs[1].sampled_rank == 1


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bad_logits_are_the_fault_of_their_row_alone(bad, temperature):
    logits = torch.tensor(LOGITS).repeat(3, 1)
    logits[1, 4] = bad
    params = batch(3, temperature=temperature, seed=5, logprobs=2)
    found = sample(logits.clone(), params)
    assert found.bad_rows == [1]
    assert sorted(found.logprobs) == [0, 2]
    good = sample(logits[:1].clone(), batch(1, temperature=temperature, seed=5)).token_ids[0]
    assert [found.token_ids[0], found.token_ids[2]] == [good, good]
    assert sample(logits, None).bad_rows == [1]


def test_a_row_in_which_everything_is_banned_is_bad():
    found = sample(torch.zeros(2, 3), batch(2, temperature=0, banned={0: [0, 1, 2]}))
    assert found.bad_rows == [0]


@pytest.mark.parametrize("temperature", [1e-39, 1e-38, 1e-30, 1e-6])
def test_the_lowest_temperatures_are_as_good_as_greedy(temperature):
    logits = torch.tensor([[1.0, 7.0, -2.0, 6.5], [80.0, -80.0, 79.0, 0.0]])
    assert sample(logits, batch(2, temperature=temperature)).token_ids == [1, 0]
