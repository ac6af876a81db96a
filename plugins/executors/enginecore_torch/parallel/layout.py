"""The division of a model over ranks: layers, heads, MLP columns and vocabulary of each one."""

import itertools
from dataclasses import dataclass

from enginecore.errors import ConfigurationError
from enginecore_models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Layout:
    """All ranks: `pipeline` stages of `tensor` consecutive ranks each.

    Attributes:
        tensor: Ranks that share every layer of a stage.
        pipeline: Stages, each with layers of its own.
    """

    tensor: int = 1
    pipeline: int = 1

    @property
    def num_ranks(self) -> int:
        """Of the whole model."""
        return self.tensor * self.pipeline

    @property
    def output_rank(self) -> int:
        """The one that samples and answers: the first of the last stage."""
        return self.tensor * (self.pipeline - 1)

    def stage_of(self, rank: int) -> int:
        """Which stage a rank belongs to."""
        return rank // self.tensor

    def ranks_of(self, stage: int) -> range:
        """The ranks of a stage."""
        return range(stage * self.tensor, (stage + 1) * self.tensor)

    def check(self, config: ModelConfig) -> None:
        """Refuse a model that cannot be divided like this.

        Raises:
            ConfigurationError: says what there is too little of.
        """
        if self.pipeline > config.num_hidden_layers:
            raise ConfigurationError(
                f"pipeline_parallel_size = {self.pipeline}, but the model has {config.num_hidden_layers} layers: each "
                "stage needs one at least"
            )
        most = min(config.num_attention_heads, config.intermediate_size, config.vocab_size)
        if self.tensor > most:
            raise ConfigurationError(
                f"tensor_parallel_size = {self.tensor}, but at most {most} ranks can share this model: it has "
                f"{config.num_attention_heads} query heads, an MLP {config.intermediate_size} wide and "
                f"{config.vocab_size} tokens, and each rank needs one of each"
            )


@dataclass(frozen=True, slots=True)
class Shard:
    """What one rank holds.

    Attributes:
        rank: Which one.
        layers: Layers of the model.
        query_heads: Query heads of every layer; those of a KV head stay together, unless there are
            more ranks than KV heads.
        kv_heads: KV heads of every layer; a KV head is repeated on all ranks that hold query heads
            of it.
        inner: Columns of the MLP.
        vocab: Rows of the embedding and of the head.
        all_vocab: The same of every rank of the stage, in order.
        is_first: Takes in tokens.
        is_last: Gives logits.
        leads: First of its stage: adds what must be added once.
    """

    rank: int
    layers: range
    query_heads: range
    kv_heads: range
    inner: range
    vocab: range
    all_vocab: tuple[range, ...]
    is_first: bool
    is_last: bool
    leads: bool

    @property
    def is_shared(self) -> bool:
        """Whether other ranks hold other parts of the same layers."""
        return len(self.all_vocab) > 1


def shard_of(config: ModelConfig, layout: Layout, rank: int) -> Shard:
    """What `rank` holds of a model that `layout.check` accepts.

    Shares differ by one where sizes do not divide.

    The first stages take the layers that are left over: the last one has the head.
    """
    stage, place = layout.stage_of(rank), rank % layout.tensor
    query_heads, kv_heads = _heads(config, layout.tensor)[place]
    vocab = tuple(split(config.vocab_size, layout.tensor))
    return Shard(
        rank=rank,
        layers=split(config.num_hidden_layers, layout.pipeline)[stage],
        query_heads=query_heads,
        kv_heads=kv_heads,
        inner=split(config.intermediate_size, layout.tensor)[place],
        vocab=vocab[place],
        all_vocab=vocab,
        is_first=stage == 0,
        is_last=stage == layout.pipeline - 1,
        leads=place == 0,
    )


def split(size: int, parts: int) -> list[range]:
    """`range(size)` in so many pieces, the first ones longer by one where it does not divide."""
    each, left = divmod(size, parts)
    ends = [each * n + min(n, left) for n in range(parts + 1)]
    return [range(start, end) for start, end in itertools.pairwise(ends)]


def _heads(config: ModelConfig, ranks: int) -> list[tuple[range, range]]:
    """Query heads and KV heads of every rank of a stage."""
    kv_heads = config.num_key_value_heads
    group = config.num_attention_heads // kv_heads
    if ranks <= kv_heads:
        return [(range(held.start * group, held.stop * group), held) for held in split(kv_heads, ranks)]
    shares = []
    for head, sharers in enumerate(split(ranks, kv_heads)):
        for part in split(group, len(sharers)):
            shares.append((range(head * group + part.start, head * group + part.stop), range(head, head + 1)))
    return shares
