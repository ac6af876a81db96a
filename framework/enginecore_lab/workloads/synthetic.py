"""Workloads that are drawn: arrivals, lengths, shared prefixes, sessions, each from a stream of its own."""

from collections.abc import Iterator

import numpy as np
from pydantic import Field, model_validator

from enginecore_lab.choices import ArrivalsChoice, LengthsChoice
from enginecore_lab.interfaces import WorkloadLoader
from enginecore_lab.streams import Streams
from enginecore_lab.tables import Table
from enginecore_lab.workload import Workload, WorkloadRequest
from enginecore_lab.workloads.choice import AnyWorkload
from enginecore_lab.workloads.prefixes import ContentIds, PrefixTree
from enginecore_lab.workloads.sessions import SessionSettings, conversation
from enginecore_lab.workloads.traces import TraceWorkload


class SyntheticWorkload(Table, WorkloadLoader):
    """Requests drawn from distributions.

    Attributes:
        num_requests: Turns of sessions included.
        arrivals: When requests come, or sessions where there are any.
        prompt: Length of a prompt behind its shared prefix; of what a turn adds to it.
        output: Tokens of an answer.
        lengths_from: Draw both together from the requests of a trace instead, so that they stay as related as they are.
        prefix: How prompts, or sessions, begin alike.
        sessions: Several turns in a row, which wait for one another.
        block_size: Tokens per block of shared content: the engine's, or a multiple of it.
    """

    num_requests: int = Field(ge=1)
    arrivals: ArrivalsChoice = Field(default={"kind": "at_once"}, validate_default=True)
    prompt: LengthsChoice = Field(default={"kind": "constant", "tokens": 512}, validate_default=True)
    output: LengthsChoice = Field(default={"kind": "constant", "tokens": 128}, validate_default=True)
    lengths_from: AnyWorkload | None = None
    prefix: PrefixTree | None = None
    sessions: SessionSettings | None = None
    block_size: int = Field(default=16, ge=1)

    @model_validator(mode="after")
    def _check_parts(self) -> "SyntheticWorkload":
        drawn_twice = {"prompt", "output"} & self.model_fields_set
        if self.lengths_from is not None and drawn_twice:
            raise ValueError(f"lengths_from and {' and '.join(sorted(drawn_twice))} both say lengths: set one of them")
        if self.lengths_from is not None and not isinstance(self.lengths_from.built, TraceWorkload):
            raise ValueError(f"lengths_from must be a trace, got kind = {self.lengths_from.name!r}")
        if self.prefix is not None:
            self.prefix.check_block_size(self.block_size)
        return self

    def make(self, streams: Streams, replicate: int) -> Workload:
        draw = _Drawing(self, streams, replicate)
        requests = draw.single_requests() if self.sessions is None else draw.session_requests(self.sessions)
        return Workload(
            name="synthetic",
            requests=requests,
            block_size=self.block_size if self.prefix is not None or self.sessions is not None else 0,
            loop="open" if self.sessions is None else "partly open",
        )


class _Drawing:
    """One drawing of all that a synthetic workload needs."""

    def __init__(self, settings: SyntheticWorkload, streams: Streams, replicate: int) -> None:
        self._settings = settings
        self._streams = streams
        self._replicate = replicate
        self._ids = ContentIds()
        self._count = settings.num_requests

    def single_requests(self) -> list[WorkloadRequest]:
        prompts, outputs = self._lengths(self._count)
        start = self._settings.prefix.num_tokens if self._settings.prefix else 0
        return [
            WorkloadRequest(
                request_id=str(number),
                arrival=arrival,
                num_prompt_tokens=start + num_prompt,
                num_output_tokens=num_output,
                hash_ids=prefix,
            )
            for number, (arrival, num_prompt, num_output, prefix) in enumerate(
                zip(self._arrivals(), prompts, outputs, self._prefixes(), strict=False)
            )
        ]

    def session_requests(self, sessions: SessionSettings) -> list[WorkloadRequest]:
        settings, rng = self._settings, self._generator("sessions")
        # a turn that no longer fits takes its lengths with it, at most one for each that does
        prompts, outputs = (iter(lengths) for lengths in self._lengths(2 * self._count))
        start = settings.prefix.num_tokens if settings.prefix else 0
        requests: list[WorkloadRequest] = []
        for number, (arrival, prefix) in enumerate(zip(self._arrivals(), self._prefixes(), strict=False)):
            turns = sessions.draw_turns(rng, prompts, outputs, start, self._count - len(requests))
            requests += conversation(
                f"s{number}",
                arrival,
                turns,
                settings.block_size,
                self._ids,
                prefix=prefix,
                share_outputs=sessions.share_outputs,
            )
            if len(requests) == self._count:
                break
        return requests

    def _generator(self, name: str) -> np.random.Generator:
        return self._streams.generator(name, self._replicate)

    def _arrivals(self) -> list[float]:
        times: list[float] = self._settings.arrivals.built.times(self._generator("arrivals"), self._count).tolist()
        return times

    def _lengths(self, count: int) -> tuple[list[int], list[int]]:
        settings, rng = self._settings, self._generator("lengths")
        trace = None if settings.lengths_from is None else settings.lengths_from.built
        if not isinstance(trace, TraceWorkload):
            prompts: list[int] = settings.prompt.built.draw(rng, count).tolist()
            outputs: list[int] = settings.output.built.draw(self._generator("outputs"), count).tolist()
            return prompts, outputs
        known = trace.whole.requests
        drawn = [known[index] for index in rng.integers(len(known), size=count).tolist()]
        return [each.num_prompt_tokens for each in drawn], [each.num_output_tokens for each in drawn]

    def _prefixes(self) -> Iterator[tuple[int, ...]]:
        tree = self._settings.prefix
        if tree is None:
            return iter([()] * self._count)
        return tree.draw(self._generator("prefixes"), self._count, self._settings.block_size, self._ids)
