"""Workloads that are read from trace files."""

from abc import abstractmethod
from functools import cached_property
from pathlib import Path

from pydantic import Field, model_validator

from enginecore.errors import ConfigurationError
from enginecore_lab.interfaces import WorkloadLoader
from enginecore_lab.streams import Streams
from enginecore_lab.tables import Table
from enginecore_lab.workload import Workload
from enginecore_lab.workloads.loaders import load_azure, load_bailian, load_burstgpt, load_jsonl, load_mooncake
from enginecore_lab.workloads.transform import between_indexes, between_times


class TraceWorkload(Table, WorkloadLoader):
    """A workload that is read from a file. A loader of another format subclasses it and fills `load`.

    Replicate r is the r-th part of `requests_per_replicate` requests, one behind the other, in the trace's own order.
    Each part brings its own warm-up: count in what a comparison skips at the beginning.

    Attributes:
        path: The file, as published.
        start: Seconds of the trace to pass over.
        end: Where to stop, in seconds of the trace; None: at its end.
        requests_per_replicate: Length of a part; None: all is one part, and there is one replicate.
        drop_empty: Leave out requests without prompt or output, which failed, instead of refusing the file.
    """

    path: Path
    start: float = Field(default=0.0, ge=0)
    end: float | None = Field(default=None, gt=0)
    requests_per_replicate: int | None = Field(default=None, ge=1)
    drop_empty: bool = False

    @model_validator(mode="after")
    def _check_window(self) -> "TraceWorkload":
        if self.end is not None and self.end <= self.start:
            raise ValueError(f"end = {self.end} must be after start = {self.start}")
        return self

    @cached_property
    def whole(self) -> Workload:
        """The trace between `start` and `end`, loaded once.

        Raises:
            ConfigurationError: a row is wrong, or nothing is left.
        """
        workload = self.load(self.path.expanduser())
        if self.start or self.end is not None:
            workload = between_times(workload, self.start, self.end)
        if not workload.requests:
            raise ConfigurationError(f"{self.path} holds no requests from start = {self.start} to end = {self.end}")
        return workload

    @abstractmethod
    def load(self, path: Path) -> Workload:
        """Read the whole file, which is `path` with its home directory expanded.

        Raises:
            ConfigurationError: the file is not as published; says which line, and what is wrong with it.
        """

    def make(self, streams: Streams, replicate: int) -> Workload:
        whole, length = self.whole, self.requests_per_replicate
        if length is None and replicate == 0:
            return whole
        parts = 1 if length is None else len(whole.requests) // length
        if length is None or replicate >= parts:
            raise ConfigurationError(
                f"{self.path} has {len(whole.requests)} requests, and with requests_per_replicate = {length} there are "
                f"{parts} replicates; number {replicate} (from 0) was asked for: "
                + ("set requests_per_replicate" if length is None else "lower it, or ask for fewer replicates")
            )
        return between_indexes(whole, replicate * length, (replicate + 1) * length)


class AzureTrace(TraceWorkload):
    """A trace of Azure LLM inference, 2023 or 2024."""

    def load(self, path: Path) -> Workload:
        return load_azure(path, drop_empty=self.drop_empty)


class MooncakeTrace(TraceWorkload):
    """A trace of Mooncake."""

    def load(self, path: Path) -> Workload:
        return load_mooncake(path, drop_empty=self.drop_empty)


class BailianTrace(TraceWorkload):
    """A trace of Alibaba Cloud's Bailian."""

    def load(self, path: Path) -> Workload:
        return load_bailian(path, drop_empty=self.drop_empty)


class BurstGPTTrace(TraceWorkload):
    """A trace of BurstGPT.

    Attributes:
        models: Only requests to these, "ChatGPT" or "GPT-4"; none: to all.
        log_types: Only "Conversation log" or "API log"; none: both.
    """

    models: tuple[str, ...] = ()
    log_types: tuple[str, ...] = ()

    def load(self, path: Path) -> Workload:
        return load_burstgpt(path, drop_empty=self.drop_empty, models=self.models, log_types=self.log_types)


class JsonlTrace(TraceWorkload):
    """A workload in enginecore's own JSON Lines format."""

    def load(self, path: Path) -> Workload:
        return load_jsonl(path, drop_empty=self.drop_empty)
