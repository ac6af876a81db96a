"""Step costs from measured steps: non-negative least squares of relative errors, and the error on steps held out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from enginecore.errors import ConfigurationError
from enginecore_simulation.costs import CostModel, StepCosts
from enginecore_simulation.samples import StepSample

if TYPE_CHECKING:
    import numpy as np

    Matrix = np.ndarray[Any, np.dtype[np.float64]]

HELD_OUT = 0.2
LEAST_SAMPLES = 10
OUTLIER = 3.0
"""A step that took so many times as long as predicted says nothing about the executor."""
RHOS = (1.2, 1.5, 2.0, 3.0, 5.0, 10.0)
KNEES = tuple(2 ** (exponent / 3) for exponent in range(9, 43))
"""Tokens from which on arithmetic takes longer than reading the weights: 8 to 16,384."""


@dataclass(frozen=True, slots=True)
class FitErrors:
    """Errors of predicted step times on steps that were not fitted, as shares of the measured ones.

    Attributes:
        num_fitted: Steps that the parameters were found from.
        num_held_out: Steps that the errors are of.
        mape: Mean of the absolute errors.
        p95_ape: 95 % of the absolute errors are at most this.
        bias: Mean of the errors; above 0: predicted times are too long.
    """

    num_fitted: int
    num_held_out: int
    mape: float
    p95_ape: float
    bias: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Costs as fitted, with their errors by regime: "decode", "mixed", or both. Costs of one regime that has too few
    steps are those of the other.
    """

    model: CostModel
    errors: Mapping[str, FitErrors]


def fit_costs(samples: Sequence[StepSample], *, gap: float = 0.0, seed: int = 0) -> Fit:
    """Fit both regimes, each on its own steps.

    Args:
        samples: Steps that computed at least one token and took some time; others are left out.
        gap: Seconds of host work between steps, measured apart.
        seed: Seed of the choice of steps that are held out.

    Raises:
        ConfigurationError: there are too few steps, or scipy is not installed.
    """
    usable = [sample for sample in samples if sample.features.num_tokens and sample.seconds > 0]
    regimes = {
        "decode": [sample for sample in usable if sample.features.is_pure_decode],
        "mixed": [sample for sample in usable if not sample.features.is_pure_decode],
    }
    enough = {name: steps for name, steps in regimes.items() if len(steps) >= LEAST_SAMPLES}
    if not enough:
        counts = ", ".join(f"{len(steps)} {name}" for name, steps in regimes.items())
        raise ConfigurationError(
            f"a fit of step costs needs at least {LEAST_SAMPLES} steps that either only decode or do not, got {counts}"
        )
    fitted = {name: _fit_regime(steps, seed) for name, steps in enough.items()}
    costs = {name: fitted[name if name in fitted else next(iter(fitted))][0] for name in regimes}
    return Fit(CostModel(costs["decode"], costs["mixed"], gap), {name: errors for name, (_, errors) in fitted.items()})


def errors_of(costs: StepCosts, samples: Sequence[StepSample], num_fitted: int = 0) -> FitErrors:
    """Errors of these costs on these steps."""
    relative = [costs.seconds(sample.features) / sample.seconds - 1 for sample in samples]
    absolute = sorted(map(abs, relative))
    return FitErrors(
        num_fitted=num_fitted,
        num_held_out=len(samples),
        mape=sum(absolute) / len(absolute),
        p95_ape=absolute[min(int(0.95 * len(absolute)), len(absolute) - 1)],
        bias=sum(relative) / len(relative),
    )


def _fit_regime(samples: Sequence[StepSample], seed: int) -> tuple[StepCosts, FitErrors]:
    shuffled = list(samples)
    Random(seed).shuffle(shuffled)
    num_held_out = max(int(HELD_OUT * len(shuffled)), 1)
    fitted, held_out = shuffled[num_held_out:], shuffled[:num_held_out]
    costs = _best_costs(fitted)
    return costs, errors_of(costs, held_out, len(fitted))


def _best_costs(samples: Sequence[StepSample]) -> StepCosts:
    """The best over all forms of the smooth maximum; for each form the problem is linear."""
    np, _ = _solvers()
    seconds = np.array([sample.seconds for sample in samples])
    first = _least_squares(samples, seconds)
    # errors as shares of the measured times favour steps that happened to be fast, and so predict too little: once
    # more, as shares of what was predicted, and without steps that something else must have held up
    usual = [sample for sample in samples if sample.seconds <= OUTLIER * first.seconds(sample.features)]
    return _least_squares(usual, np.array([first.seconds(sample.features) for sample in usual]))


def _least_squares(samples: Sequence[StepSample], weighed_by: "Matrix") -> StepCosts:
    """The costs of the least squares of errors, each divided by its part of `weighed_by`."""
    np, nnls = _solvers()
    wanted = np.array([sample.seconds for sample in samples]) / weighed_by
    table = np.array([sample.features for sample in samples], dtype=float)
    n, requests, contexts, pairs = table[:, 0], table[:, 2], table[:, 3], table[:, 4]
    # a feature that never changes says nothing that the constant does not
    fixed = [np.ones_like(n), *(each * (np.ptp(each) > 0) for each in (requests, contexts, pairs))]
    least, best = inf, StepCosts()
    for rho, knee, column in _forms(n):
        columns = np.stack([*fixed, column], axis=1) / weighed_by[:, None]
        scale = columns.max(axis=0)
        scale[scale == 0] = 1.0
        found, residual = nnls(columns / scale, wanted)
        per_step, per_request, per_kv_token, per_pair, per_column = (float(x) for x in found / scale)
        if residual < least * (1 - 1e-6):  # a form that is no better than a simpler one is not taken
            least, best = residual, StepCosts(
                per_step=per_step,
                per_request=per_request,
                weights=per_column if knee else 0.0,
                per_token=per_column / (knee or 1.0),
                rho=rho,
                per_kv_token=per_kv_token,
                per_attention_pair=per_pair,
            )  # fmt: skip
    return best


def _forms(n: "Matrix") -> "Iterator[tuple[float, float, Matrix]]":
    """Candidates for what n tokens cost: rho, knee, and the cost as a multiple of `weights`; at first a plain sum."""
    yield 1.0, 0.0, n
    for rho in RHOS:
        for knee in KNEES:
            yield rho, knee, (1 + (n / knee) ** rho) ** (1 / rho)


def _solvers() -> tuple[Any, Any]:
    try:
        import numpy as np
        from scipy.optimize import nnls
    except ImportError as error:
        raise ConfigurationError(
            f"fitting step costs needs scipy, which is not installed ({error}): pip install 'enginecore[lab]'"
        ) from error
    return np, nnls
