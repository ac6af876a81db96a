"""The two ends of a model: the embedding, and the output head, which may share one table."""

from dataclasses import replace

import torch
from torch.nn import functional

from enginecore_torch.models.interface import ModelContext
from enginecore_torch.models.linear import Linear
from enginecore_torch.models.weights import Axis, CheckpointTensor


class EmbeddingAndHead:
    """Token ids to hidden states on the first stage, hidden states to logits on the last."""

    def __init__(self, context: ModelContext) -> None:
        config, shard = context.config, context.shard
        self._shard, self._tied, self._all_reduce = shard, config.tie_word_embeddings, context.communicator.all_reduce
        self._rows, self._hidden = Axis(config.vocab_size, shard.vocab), Axis.whole(config.hidden_size)
        self._head = Linear(context, self._hidden, {"lm_head": self._rows})
        if shard.is_first:
            shape = (len(shard.vocab), config.hidden_size)
            self._table = torch.empty(shape, dtype=context.dtype, device=context.device)

    @property
    def tensors(self) -> dict[str, CheckpointTensor]:
        """The checkpoint's tensors. Tied checkpoints may repeat the table as the head's weight."""
        reads_table = self._shard.is_first or (self._shard.is_last and self._tied)
        table = CheckpointTensor((self._rows, self._hidden), self._load_table if reads_table else None)
        head = self._head.tensors["lm_head.weight"]
        if self._tied or not self._shard.is_last:
            head = replace(head, load=None, optional=self._tied)
        return {"model.embed_tokens.weight": table, "lm_head.weight": head}

    def _load_table(self, tensor: torch.Tensor) -> None:
        if self._shard.is_first:
            self._table.copy_(tensor)
            if self._shard.is_last and self._tied:
                self._head.use_weight(self._table)
        else:
            self._head.load_weight("lm_head", tensor)

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """int64 [tokens] to [tokens, hidden], on every rank of the stage."""
        if not self._shard.is_shared:
            return functional.embedding(token_ids, self._table)
        rows = token_ids - self._shard.vocab.start
        here = (rows >= 0) & (rows < len(self._shard.vocab))
        summand = functional.embedding(rows * here, self._table) * here.unsqueeze(-1)
        self._all_reduce(summand)
        return summand

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[n, hidden] to [n, rows of the vocabulary on this rank]."""
        return self._head(hidden)
