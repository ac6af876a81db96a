"""A test of paired differences that stays valid however often it is looked at."""

from math import exp, inf, log, sqrt


class SequentialTest:
    """Collects differences d = candidate - baseline, one per pair of blocks.

    The order inside each pair is drawn by lot, so without an effect each d is as likely as -d, given |d|. Then
    M = exp(c S^2 / (2 (1 + c V))) / sqrt(1 + c V), with S the sum of the differences and V that of their squares, is a
    supermartingale for any distribution: the chance that it ever reaches 1/alpha is at most alpha (de la Peña 1999;
    Howard, Ramdas, McAuliffe and Sekhon, Annals of Statistics 2021).

    Beside it stands the asymptotic confidence sequence of Waudby-Smith et al., for display: it is no exact promise.

    Args:
        sd: Standard deviation of a difference without effect, from a pilot before the test begins.
        num_pairs: Pairs after which the test is to be sharpest.
        alpha: Chance of a wrong alarm, over all looks together.

    Raises:
        ValueError: an argument is outside its range.
    """

    def __init__(self, sd: float, num_pairs: int = 100, alpha: float = 0.05) -> None:
        if not 0 < sd < inf:
            raise ValueError(f"sd, the standard deviation of a difference without effect, must be above 0, got {sd}")
        if num_pairs < 1:
            raise ValueError(f"num_pairs must be at least 1, got {num_pairs}")
        if not 0 < alpha < 1:
            raise ValueError(f"alpha must be between 0 and 1, got {alpha}")
        self.alpha = alpha
        self.num_pairs = 0
        self._rho2 = (-2 * log(alpha) + log(1 - 2 * log(alpha))) / num_pairs
        self._c = self._rho2 / sd**2
        self._sum = self._sum_of_squares = 0.0
        self._log_largest = 0.0

    def add_difference(self, difference: float) -> None:
        """One more pair.

        Raises:
            ValueError: it is no finite number.
        """
        if not -inf < difference < inf:
            raise ValueError(f"the difference of a pair must be a finite number, got {difference}")
        self.num_pairs += 1
        self._sum += difference
        self._sum_of_squares += difference**2
        self._log_largest = max(self._log_largest, self._log_e_value)

    @property
    def e_value(self) -> float:
        """Evidence against "no difference", now: it is bet at 1, and wins where there is one."""
        return exp(min(self._log_e_value, 700.0))

    @property
    def p_value(self) -> float:
        """Valid at every look: one over the largest e-value so far."""
        return exp(-min(self._log_largest, 700.0))

    @property
    def is_decided(self) -> bool:
        """Whether the e-value has ever reached 1/alpha. It stays so."""
        return self._log_largest >= -log(self.alpha)

    @property
    def mean(self) -> float:
        """Mean of the differences; NaN without any."""
        return self._sum / self.num_pairs if self.num_pairs else float("nan")

    @property
    def half_width(self) -> float:
        """Half width of the confidence sequence around `mean`; infinite before 20 pairs, where the
        approximation is poor.
        """
        t = self.num_pairs
        if t < 20:
            return inf
        variance = max(self._sum_of_squares / t - self.mean**2, 0.0)
        spread = t * self._rho2 + 1
        return sqrt(variance) * sqrt(spread / (t**2 * self._rho2) * log(spread / self.alpha**2))

    @property
    def _log_e_value(self) -> float:
        grown = 1 + self._c * self._sum_of_squares
        return self._c * self._sum**2 / (2 * grown) - log(grown) / 2


def pairs_needed(effect: float, sd: float) -> int:
    """Pairs that a test of fixed length needs to see an effect four times out of five; a sequential one about twice
    as many.
    """
    if effect == 0 or sd <= 0:
        raise ValueError(f"needs an effect other than 0 and an sd above 0, got {effect} and {sd}")
    return max(1, round((2.8 * sd / effect) ** 2))
