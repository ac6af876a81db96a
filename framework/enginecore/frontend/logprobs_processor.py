"""Log-probabilities of one request, as users see them."""

from collections.abc import Sequence

from enginecore.frontend.detokenizer import check_text
from enginecore.frontend.outputs import Logprob
from enginecore.interfaces import Tokenizer
from enginecore.messages import PositionLogprobs


class LogprobsProcessor:
    """Collects one completion's log-probabilities.

    Attributes:
        cumulative: Sum over the sampled tokens so far.
    """

    __slots__ = ("_positions", "_tokenizer", "cumulative")

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        """Without a tokenizer, entries have no text."""
        self._tokenizer = tokenizer
        self._positions: list[dict[int, Logprob]] = []
        self.cumulative = 0.0

    def append(self, positions: Sequence[PositionLogprobs], num_tokens: int) -> None:
        """Add the entries of the first `num_tokens` positions.

        Raises:
            ValueError: there are fewer.
        """
        if len(positions) < num_tokens:
            raise ValueError(f"the engine core gave {num_tokens} tokens with log-probabilities for {len(positions)}")
        for position in positions[:num_tokens]:
            self.cumulative += position.logprobs[0]
            self._positions.append(self._entry(position))

    def so_far(self) -> list[dict[int, Logprob]]:
        """All positions, as a list of the caller's own."""
        return list(self._positions)

    def take(self) -> list[dict[int, Logprob]]:
        """The positions added since this was last called."""
        positions, self._positions = self._positions, []
        return positions

    def _entry(self, position: PositionLogprobs) -> dict[int, Logprob]:
        ranks = (position.sampled_rank, *range(1, len(position.token_ids)))
        entry: dict[int, Logprob] = {}
        for token_id, logprob, rank in zip(position.token_ids, position.logprobs, ranks, strict=True):
            if token_id not in entry:  # the sampled token may be among the likeliest
                entry[token_id] = Logprob(logprob, rank, self._decode(token_id))
        return entry

    def _decode(self, token_id: int) -> str | None:
        if self._tokenizer is None:
            return None
        text = self._tokenizer.decode([token_id], skip_special_tokens=False)
        check_text(text)
        return text
