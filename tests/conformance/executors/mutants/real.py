"""Bugs in the runner of a real model."""

import dataclasses
import itertools

import numpy as np

from enginecore.catalog import LoadedCatalog
from enginecore.settings import load_settings
from enginecore_torch.executor import SingleExecutor


class Single(SingleExecutor):
    """A mutant is one that differs somewhere."""

    caught_by = ""
    patience = 30.0

    def __init__(self, settings, context):
        from enginecore_models.source import find_model

        settings = settings.model_copy(update={"num_threads": 1})
        catalog = LoadedCatalog(load_settings({"attention.use": "torch"}, environ={}))
        context = dataclasses.replace(context, catalog=catalog)
        super().__init__(settings, context, find_model(context.model))
        self.runner = self._rank._runner  # type: ignore[union-attr]
        self.batch = self.runner._batch
        self.prepare, self.sampling = self.batch.prepare, self.batch.sampling
        self.batch.prepare, self.batch.sampling = self.changed, self.changed_sampling

    def changed(self, counts):
        return self.prepare(counts)

    def changed_sampling(self, inputs):
        return self.sampling(inputs)


class PositionsRestart(Single):
    """Each chunk of a prompt begins at position 0."""

    caught_by = "chunks_change_nothing"

    def changed(self, counts):
        inputs = self.prepare(counts)
        positions = [np.arange(n) if n > 1 else np.arange(1) + self.batch._num_computed[slot]
                     for n, slot in zip(inputs.counts, inputs.slots, strict=True)]  # fmt: skip
        return dataclasses.replace(inputs, positions=np.concatenate(positions))


class OneTableForAll(Single):
    """Where there are five or more, the last reads the blocks of the one before it."""

    caught_by = "company_changes_nothing"

    def changed(self, counts):
        inputs = self.prepare(counts)
        if len(counts) >= 5:
            inputs.attention.block_tables[-1] = inputs.attention.block_tables[-2]
        return inputs


class SeedsByRow(Single):
    caught_by = "seeds_repeat"

    def changed_sampling(self, inputs):
        batch = self.sampling(inputs)
        return batch and dataclasses.replace(batch, seed=np.arange(len(batch.seed), dtype=np.uint64))


class WritesToBlockZero(Single):
    """Block 0 is taken for one that nobody has."""

    caught_by = "a_request_writes_to_its_own_slots_only"

    def changed(self, counts):
        inputs = self.prepare(counts)
        if 0 not in inputs.attention.block_tables[:, 0]:
            for tensor in itertools.chain(*self.runner._kv_caches):
                tensor[0] = 0
        return inputs
