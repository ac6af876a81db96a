"""Requests for tests: prompts of a few block-sized bricks, which share prefixes and hit in full.

With random prompts nothing is ever shared, and faults such as "the last token of a fully cached
prompt was not computed again" stay unseen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from enginecore.messages import EngineCoreRequest
from enginecore.sampling import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickWorkload:
    """A source of requests; the same seed gives the same ones.

    Attributes:
        seed: Seed of the generator.
        block_size: Length of a brick, in tokens.
        vocab_size: Token ids are below this.
        num_bricks: Different bricks.
        max_bricks: Bricks in a prompt at most.
        ragged: Share of prompts that do not end with a whole brick.
        max_tokens: Output tokens at most.
        salts: Cache salts to choose from.
        stop_token_ids: How many stop tokens a request may have.
    """

    seed: int
    block_size: int
    vocab_size: int = 256
    num_bricks: int = 3
    max_bricks: int = 4
    ragged: float = 0.5
    max_tokens: int = 12
    salts: Sequence[str | None] = (None,)
    stop_token_ids: int = 2

    def requests(self, count: int, *, prefix: str = "r") -> list[EngineCoreRequest]:
        """Requests `r0`, `r1`, ... that differ in prompt, salt, urgency, sampling and when they
        end.
        """
        random = Random(self.seed)
        bricks = [random.choices(range(self.vocab_size), k=self.block_size) for _ in range(self.num_bricks)]
        return [self._request(f"{prefix}{number}", random, bricks) for number in range(count)]

    def _request(self, request_id: str, random: Random, bricks: list[list[int]]) -> EngineCoreRequest:
        prompt = [token for _ in range(random.randint(1, self.max_bricks)) for token in random.choice(bricks)]
        if random.random() < self.ragged:
            prompt = prompt[: -random.randrange(1, self.block_size)] if self.block_size > 1 else prompt
        return EngineCoreRequest(
            request_id=request_id,
            prompt_token_ids=prompt,
            params=self._params(random),
            cache_salt=random.choice(self.salts),
            priority=random.randrange(3),
            tenant=f"tenant{random.randrange(3)}",
            skip_prefix_cache=random.random() < 0.1,
        )

    def _params(self, random: Random) -> SamplingParams:
        max_tokens = random.randint(0, self.max_tokens)
        return SamplingParams(
            temperature=random.choice((0.0, 1.0)),
            seed=random.randrange(1 << 32),
            max_tokens=max_tokens,
            min_tokens=random.choice((0, 0, max_tokens // 2)),
            stop_token_ids=tuple(random.sample(range(self.vocab_size), random.randint(0, self.stop_token_ids))),
            ignore_eos=random.random() < 0.5,
        )
