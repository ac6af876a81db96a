"""Named offline workloads: token ids and output lengths from a fixed seed."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """Prompts, and how many tokens each is to give.

    Attributes:
        name: As in `SHAPES`.
        prompts: Token ids.
        output_lens: Output tokens of each.
    """

    name: str
    prompts: list[list[int]]
    output_lens: list[int]

    @property
    def num_prompt_tokens(self) -> int:
        """Over all prompts."""
        return sum(map(len, self.prompts))

    @property
    def num_output_tokens(self) -> int:
        """Over all outputs."""
        return sum(self.output_lens)


@dataclass(frozen=True)
class Shape:
    """Requests, lengths in [low, high), and tokens of a prefix that all share."""

    count: int
    prompt: tuple[int, int]
    output: tuple[int, int]
    shared: int = 0


SHAPES = {
    "mixed64": Shape(64, (64, 384), (32, 128)),
    "decode64": Shape(64, (16, 32), (128, 129)),
    "prefill16": Shape(16, (1024, 1536), (1, 2)),
    "shared64": Shape(64, (32, 128), (16, 64), shared=1024),
    "single": Shape(1, (16, 17), (128, 129)),
}


def make(name: str) -> Workload:
    """The workload of this name. The order of draws is part of its definition: other engines run the same tokens."""
    shape, draw = SHAPES[name], random.Random(0)

    def tokens(count: int) -> list[int]:
        return [draw.randrange(100, 40_000) for _ in range(count)]

    prefix = tokens(shape.shared)
    prompts = [prefix + tokens(draw.randrange(*shape.prompt)) for _ in range(shape.count)]
    return Workload(name, prompts, [draw.randrange(*shape.output) for _ in range(shape.count)])
