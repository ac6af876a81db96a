"""Choosing the next tokens, vectorised over the batch.

A sampled token depends on its own logits, parameters, seed and index alone: one uniform number is a
fixed function of seed and index, and picks the token by the inverse of the cumulative distribution
over token ids. Neighbours, batch position, chunking and preemption change nothing.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from enginecore.messages import PositionLogprobs

TOP_P_CANDIDATES = 1024
"""How many of the likeliest tokens are sorted before all are, to find where top-p ends."""


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """What the rows of logits ask for. Arrays are numpy, [rows].

    Attributes:
        temperature: float32; 0 is greedy.
        top_k: int64; 0 is all.
        top_p: float32.
        seed: uint64.
        index: uint64: of the output token to draw.
        banned: Token ids that may not be drawn, by row (min_tokens).
        num_logprobs: int64; -1 is none.
    """

    temperature: np.ndarray
    top_k: np.ndarray
    top_p: np.ndarray
    seed: np.ndarray
    index: np.ndarray
    banned: dict[int, list[int]]
    num_logprobs: np.ndarray


@dataclass(frozen=True, slots=True)
class Sampled:
    """Chosen tokens.

    Attributes:
        token_ids: One per row.
        bad_rows: Rows whose logits gave nothing to choose from (not a number, or all tokens
            banned).
        logprobs: Log-probabilities by row, of the rows that asked.
    """

    token_ids: list[int]
    bad_rows: list[int]
    logprobs: dict[int, PositionLogprobs]


def sample(logits: torch.Tensor, batch: SamplingBatch | None) -> Sampled:
    """One token per row of logits [rows, vocab], which may be overwritten.

    Without a batch, every row is plainly greedy.
    """
    if batch is None:
        values, tokens = logits.max(-1)
        return Sampled(tokens.tolist(), _bad_rows(values), {})
    raw = _raw_logprobs(logits, batch.num_logprobs)
    for row, token_ids in batch.banned.items():
        logits[row, token_ids] = -torch.inf
    values, tokens = logits.max(-1)  # with bfloat16 6 times as fast as argmax
    bad_rows = _bad_rows(values)
    if len(random := np.flatnonzero(batch.temperature)):
        rows = torch.from_numpy(random).to(logits.device)
        tokens[rows] = _draw(logits[rows].float(), batch, random)
    logprobs = {
        row: _describe(raw[n], int(tokens[row]), int(batch.num_logprobs[row]))
        for n, row in enumerate(np.flatnonzero(batch.num_logprobs >= 0).tolist())
        if row not in bad_rows
    }
    return Sampled(tokens.tolist(), bad_rows, logprobs)


def _bad_rows(maxima: torch.Tensor) -> list[int]:
    """Rows whose maximum is not finite: they hold NaN or infinity, or every token is banned."""
    return [row for row, value in enumerate(maxima.tolist()) if not math.isfinite(value)]


# -- drawing ---------------------------------------------------------------------------------------


def _draw(logits: torch.Tensor, batch: SamplingBatch, rows: np.ndarray) -> torch.Tensor:
    """Tokens for these rows of the batch; logits: float32 [len(rows), vocab], a copy."""
    logits = logits.nan_to_num_(nan=-torch.inf, posinf=-torch.inf)  # such rows get an error
    logits -= logits.max(-1, keepdim=True).values  # low temperatures would overflow
    logits /= torch.from_numpy(batch.temperature[rows]).to(logits.device).unsqueeze(-1)
    top_k = np.where(batch.top_k[rows] > 0, batch.top_k[rows], logits.shape[-1]).clip(max=logits.shape[-1])
    _truncate_top_k(logits, top_k)
    _truncate_top_p(logits, batch.top_p[rows])
    cumulative = logits.softmax(-1).cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    uniform = torch.from_numpy(uniforms(batch.seed[rows], batch.index[rows])).to(logits.device).unsqueeze(-1)
    # a product rounded up to the total would lie past the last token
    point = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, point, right=True).squeeze(-1).clamp_(max=logits.shape[-1] - 1)


def _truncate_top_k(logits: torch.Tensor, top_k: np.ndarray) -> None:
    """Ban, in place, what is less likely than the k-th likeliest token; tokens equal to it stay."""
    vocab = logits.shape[-1]
    if not len(cut := np.flatnonzero(top_k < vocab)):
        return
    rows = torch.from_numpy(cut).to(logits.device)
    best = logits[rows].topk(int(top_k[cut].max()), dim=-1).values
    least = best.gather(-1, torch.from_numpy(top_k[cut]).to(logits.device).unsqueeze(-1) - 1)
    logits[rows] = logits[rows].masked_fill(logits[rows] < least, -torch.inf)


def _truncate_top_p(logits: torch.Tensor, top_p: np.ndarray) -> None:
    """Ban, in place, all but the smallest set of likeliest tokens that reaches top_p.

    Tokens equal to its last one stay.
    """
    cut = np.flatnonzero(top_p < 1)
    candidates = min(TOP_P_CANDIDATES, logits.shape[-1])
    while len(cut):
        rows = torch.from_numpy(cut).to(logits.device)
        probabilities = logits[rows].softmax(-1)
        best = probabilities.topk(candidates, dim=-1).values
        reached = best.cumsum(-1, dtype=torch.float64)
        wanted = torch.from_numpy(top_p[cut]).to(logits.device, torch.float64).unsqueeze(-1)
        count = (reached < wanted).sum(-1, keepdim=True)  # of tokens before the one that reaches it
        found = (count < candidates).squeeze(-1) | (candidates == logits.shape[-1])
        least = best.gather(-1, count.clamp_(max=candidates - 1))
        kept = logits[rows].masked_fill(probabilities < least, -torch.inf)
        logits[rows[found]] = kept[found]
        cut = cut[(~found).cpu().numpy()]
        candidates = logits.shape[-1]


def uniforms(seed: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1), float64, each a fixed function of a seed and an output index, both uint64.

    Two rounds of splitmix64 (Steele, Lea and Flood, 2014, https://doi.org/10.1145/2660193.2660195).
    """
    mixed = _mix(_mix(seed) + index)
    return np.asarray((mixed >> np.uint64(11)) * 2.0**-53)


def _mix(word: np.ndarray) -> np.ndarray:
    word = word + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(word ^ (word >> np.uint64(31)))


# -- logprobs --------------------------------------------------------------------------------------


def _raw_logprobs(logits: torch.Tensor, num_logprobs: np.ndarray) -> torch.Tensor:
    """Log-probabilities before any token is banned: float32 [rows that asked, vocab]."""
    rows = torch.from_numpy(np.flatnonzero(num_logprobs >= 0)).to(logits.device)
    return logits[rows].float().log_softmax(-1)


def _describe(logprobs: torch.Tensor, token: int, count: int) -> PositionLogprobs:
    """The sampled token, then the `count` likeliest. Its rank is 1 if none is likelier."""
    best = logprobs.topk(min(count, len(logprobs)))
    sampled = logprobs[token]
    return PositionLogprobs(
        token_ids=[token, *best.indices.tolist()],
        logprobs=[float(sampled), *best.values.tolist()],
        sampled_rank=1 + int((logprobs > sampled).sum()),
    )
