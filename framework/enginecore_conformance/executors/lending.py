"""The executor under check: built once, and lent to one check after another."""

import itertools
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psutil

from enginecore.catalog import LoadedCatalog
from enginecore.clock import Clock, RealClock, VirtualClock
from enginecore.errors import ConfigurationError
from enginecore.interfaces import Executor, KVCacheConfig
from enginecore.plugin import ExecutorContext
from enginecore_conformance.executors.tiny_llama import write_tiny_llama
from enginecore_conformance.subject import Options, Subject

BLOCK_SIZE, NUM_BLOCKS = 8, 64
MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS, MAX_MODEL_LEN = 8, 256, 64
LIMITS: Mapping[str, int] = {
    "block_size": BLOCK_SIZE,
    "num_kv_blocks": NUM_BLOCKS,
    "max_num_seqs": MAX_NUM_SEQS,
    "max_num_batched_tokens": MAX_NUM_BATCHED_TOKENS,
    "max_model_len": MAX_MODEL_LEN,
}
"""Settings of the engine that are the kit's own affair: checks are made for them."""
HELPERS = ("resource_tracker", "forkserver")
"""In the command lines of processes that the standard library starts, and that are no workers."""

WORDS = {
    "batch_queue": "several batches in flight",
    "content": "tokens that have content",
    "feeds_tokens": "sampled tokens that it feeds by itself",
    "in_order": "steps in order",
    "no_adapters": "no adapters",
    "waits_for_tokens": "sampled tokens that come back before they are fed",
    "workers": "worker processes",
}
"""What checks may need of an executor, and how it is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorOptions(Options):
    """Options of the checks of an executor: those of all kinds, and more.

    Of `engine`, "model", "dtype", "device" and "seed" say what it runs, and where. Without a model
    it is a random Llama of 200 kB that the kit writes, without a tokenizer; without a dtype
    "float32", the only one in which it can be asked whether company changes no token.

    Attributes:
        virtual: Whether the clock is a virtual one: for one whose steps end by `clock.call_at`
            only, after a long time perhaps.
        workers: Process ids of its workers; None: the processes that were started while it was
            built.
        patience: As for all; a step of a model takes its time.
        time_limit: As for all.
    """

    virtual: bool = False
    workers: Callable[[Executor], Sequence[int]] | None = None
    patience: float = 30.0
    time_limit: float = 200.0


@dataclass(slots=True, kw_only=True)
class Standing:
    """An executor that was built, and how far the count of its steps and requests has come.

    Attributes:
        executor: The executor.
        clock: Clock of the executor.
        context: Context that it was built with.
        workers: Process ids of its workers.
        cache: KV cache of the executor; None: not initialised yet.
        steps: Numbers of steps.
        request_ids: Names of requests, none twice.
        alone: Tokens of requests that ran alone, by prompt and parameters.
    """

    executor: Executor
    clock: Clock
    context: ExecutorContext
    workers: tuple[int, ...]
    cache: KVCacheConfig | None = None
    steps: Iterator[int] = field(default_factory=itertools.count)
    request_ids: Iterator[str] = field(default_factory=lambda: (f"request-{number}" for number in itertools.count()))
    alone: dict[Any, Any] = field(default_factory=dict)

    @property
    def words(self) -> frozenset[str]:
        """Words of `WORDS` that hold for this executor."""
        declared = self.executor.capabilities
        words = {
            "batch_queue": declared.max_concurrent_batches > 1,
            "content": not declared.model_free,
            "feeds_tokens": declared.feeds_tokens,
            "in_order": declared.in_order,
            "no_adapters": not declared.adapters,
            "waits_for_tokens": not declared.feeds_tokens,
            "workers": bool(self.workers),
        }
        return frozenset(word for word, holds in words.items() if holds)

    def initialize(self) -> None:
        """Give it its KV cache, if it has none yet."""
        if self.cache is None:
            names = tuple(self.executor.get_kv_cache_specs())
            self.executor.determine_available_memory()
            cache = KVCacheConfig(NUM_BLOCKS, BLOCK_SIZE, (names,))
            self.executor.initialize_from_config(cache)
            self.cache = cache


class Lender:
    """Has an executor. Building one takes long, so checks that leave it whole share it.

    Attributes:
        patience: Seconds to wait for a step.
    """

    def __init__(self, subject: Subject) -> None:
        """Nothing is built yet.

        Raises:
            ConfigurationError: the engine's settings name what is the kit's own affair.
        """
        given = subject.options.engine or {}
        if fixed := [f"{key} = {LIMITS[key]}" for key in LIMITS if key in given]:
            raise ConfigurationError(f"the kit for executors has its own {', '.join(fixed)}: leave it out of engine")
        self.patience = subject.patience
        self._subject = subject
        self._options = cast(ExecutorOptions, subject.options)  # as the kit says
        self._model = subject.loaded.settings.model if "model" in given else None
        self._dtype = subject.loaded.settings.dtype if "dtype" in given else "float32"
        self._standing: Standing | None = None
        self._built: list[Executor] = []
        weakref.finalize(self, _shut_down, self._built)

    def lend(self) -> Standing:
        """The executor that stands; a new one, if none does."""
        if self._standing is None:
            self._standing = self.build()
            self._subject.clearing.callback(self.drop)
        return self._standing

    def build(self) -> Standing:
        """A new one, beside that which stands."""
        context = self._context()
        before = {child.pid for child in psutil.Process().children()}
        executor: Executor = self._subject.loaded.build("executor", context)
        self._built.append(executor)
        if self._options.workers is not None:
            workers = tuple(self._options.workers(executor))
        else:
            workers = tuple(pid for pid in _children() if pid not in before)
        return Standing(executor=executor, clock=context.clock, context=context, workers=workers)

    def drop(self) -> None:
        """Shut down the one that stands; not waited for longer than patience."""
        standing, self._standing = self._standing, None
        if standing is not None:
            self._built.remove(standing.executor)
            ending = threading.Thread(target=_shut_down, args=([standing.executor],), daemon=True)
            ending.start()
            ending.join(self.patience)

    def _context(self) -> ExecutorContext:
        if self._model is None:
            folder = Path(tempfile.mkdtemp(prefix="ec-tiny-llama-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            write_tiny_llama(folder)
            self._model = str(folder)
        settings = self._subject.loaded.settings
        return ExecutorContext(
            model=self._model,
            dtype=self._dtype,
            device=settings.device,
            max_model_len=MAX_MODEL_LEN,
            block_size=BLOCK_SIZE,
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
            seed=settings.seed,
            clock=VirtualClock() if self._options.virtual else RealClock(),
            catalog=LoadedCatalog(self._subject.loaded),
        )


def _children() -> Iterator[int]:
    for child in psutil.Process().children():
        try:
            command = " ".join(child.cmdline())
        except psutil.Error:
            continue  # it has gone
        if not any(helper in command for helper in HELPERS):
            yield child.pid


def _shut_down(executors: list[Executor]) -> None:
    for executor in executors:
        try:
            executor.shutdown()
        except Exception:
            continue  # a check says so, if it is asked
