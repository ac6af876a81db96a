"""Workloads made of ShareGPT's conversations."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from pydantic import Field, model_validator

from enginecore.errors import ConfigurationError
from enginecore.frontend.tokenizer import load_tokenizer
from enginecore.settings import load_settings
from enginecore_lab.choices import ArrivalsChoice
from enginecore_lab.interfaces import WorkloadLoader
from enginecore_lab.streams import Streams
from enginecore_lab.tables import Table
from enginecore_lab.workload import Workload, WorkloadRequest
from enginecore_lab.workloads.arrivals import ConstantThinkTime, ThinkTime
from enginecore_lab.workloads.loaders import ConversationLengths, count_words, load_sharegpt
from enginecore_lab.workloads.prefixes import ContentIds
from enginecore_lab.workloads.sessions import Turn, conversation


class ShareGPTWorkload(Table, WorkloadLoader):
    """Conversations of ShareGPT, at drawn times.

    The file has no times. A turn waits for the answer before it.

    Replicate r is the r-th part of `sessions_per_replicate` conversations, in the order of the file.

    Attributes:
        path: The file, as published.
        arrivals: When conversations begin.
        think_time: From an answer's end to the next turn.
        sessions_per_replicate: None: all are one part, and there is one replicate.
        max_context: A conversation ends before a turn with which prompt and answer would be longer; one whose first
            turn is too long already is left out. None: never.
        tokenizer: Folder or name of the model whose tokenizer counts tokens; None: words are counted.
        tokens_per_word: Without a tokenizer.
        share_outputs: Simulated engines keep what they generated, so that the next turn finds it in their cache.
        block_size: Tokens per block of shared content: the engine's, or a multiple of it.
    """

    path: Path
    arrivals: ArrivalsChoice
    think_time: ThinkTime = ConstantThinkTime(seconds=0.0)
    sessions_per_replicate: int | None = Field(default=None, ge=1)
    max_context: int | None = Field(default=None, ge=2)
    tokenizer: str | None = None
    tokens_per_word: float = Field(default=1.3, gt=0)
    share_outputs: bool = True
    block_size: int = Field(default=16, ge=1)

    @model_validator(mode="after")
    def _check_counting(self) -> "ShareGPTWorkload":
        if self.tokenizer is not None and "tokens_per_word" in self.model_fields_set:
            raise ValueError("tokenizer and tokens_per_word both say how tokens are counted: set one of them")
        return self

    @cached_property
    def conversations(self) -> list[ConversationLengths]:
        """Conversations of the file that fit, with their lengths.

        Raises:
            ConfigurationError: the file is not as published, or nothing is left.
        """
        loaded = load_sharegpt(self.path.expanduser(), self._counter())
        kept = [ConversationLengths(each.name, turns) for each in loaded if (turns := self._fitting(each))]
        if not kept:
            raise ConfigurationError(f"{self.path}: no conversation fits max_context = {self.max_context}")
        return kept

    def _counter(self) -> Callable[[str], int]:
        if self.tokenizer is None:
            return count_words(self.tokens_per_word)
        tokenizer = load_tokenizer(load_settings({"model": self.tokenizer}, environ={}))
        return lambda text: len(tokenizer.encode(text, add_special_tokens=False))

    def _fitting(self, whole: ConversationLengths) -> tuple[tuple[int, int], ...]:
        context = 0
        for number, (asked, answered) in enumerate(whole.turns):
            context += asked + answered
            if self.max_context is not None and context > self.max_context:
                return whole.turns[:number]
        return whole.turns

    def make(self, streams: Streams, replicate: int) -> Workload:
        part = self._part(replicate)
        times = self.arrivals.built.times(streams.generator("arrivals", replicate), len(part)).tolist()
        rng, ids = streams.generator("sessions", replicate), ContentIds()
        requests: list[WorkloadRequest] = []
        for number, (arrival, each) in enumerate(zip(times, part, strict=True)):
            thinking = self.think_time.draw(rng, len(each.turns)).tolist()
            turns = [Turn(*lengths, think) for lengths, think in zip(each.turns, thinking, strict=True)]
            requests += conversation(
                f"s{number}", arrival, turns, self.block_size, ids, share_outputs=self.share_outputs
            )
        return Workload(name=self.path.stem, requests=requests, block_size=self.block_size, loop="partly open")

    def _part(self, replicate: int) -> list[ConversationLengths]:
        known, length = self.conversations, self.sessions_per_replicate or len(self.conversations)
        if (replicate + 1) * length > len(known):
            raise ConfigurationError(
                f"{self.path} has {len(known)} conversations that fit, and with sessions_per_replicate = "
                f"{self.sessions_per_replicate} there are {len(known) // length} replicates; number {replicate} (from "
                "0) was asked for: lower it, or ask for fewer replicates"
            )
        return known[replicate * length : (replicate + 1) * length]
