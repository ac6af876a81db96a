"""Executor: runs the model. What it declares about itself, and how its KV cache is sized."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from enginecore.errors import ConfigurationError, EngineCoreError, UtilityError
from enginecore.messages import GrammarOutput, ModelRunnerOutput, SchedulerOutput


@dataclass(frozen=True, slots=True)
class KVCacheSpec:
    """KV cache layout of one layer.

    Attributes:
        block_size: Tokens per block.
        page_size_bytes: Bytes that one block of this layer takes, keys and values together.
        non_causal: Tokens attend to later ones (prefix-LM): no prompt may be split, no prefix
            re-used, so chunked prefill and prefix caching are switched off for the whole engine.

    Raises:
        ConfigurationError: a size is below 1.
    """

    block_size: int
    page_size_bytes: int
    non_causal: bool = False

    def __post_init__(self) -> None:
        if self.block_size < 1 or self.page_size_bytes < 1:
            raise ConfigurationError(f"sizes of a KV cache must be at least 1, got {self}")


@dataclass(frozen=True, slots=True)
class KVCacheConfig:
    """The KV cache as it was sized: the same on every rank.

    Attributes:
        num_blocks: Blocks in the pool; ids are 0 to num_blocks - 1.
        block_size: Tokens per block.
        groups: Layer names per KV cache group; layers of a group share a block table. One group
            for now.
    """

    num_blocks: int
    block_size: int
    groups: tuple[tuple[str, ...], ...]

    @property
    def num_slots(self) -> int:
        """Tokens that the pool holds."""
        return self.num_blocks * self.block_size


@dataclass(frozen=True, slots=True)
class ExecutorCapabilities:
    """Features of an executor. Read once it is built, as they may depend on settings.

    Attributes:
        max_concurrent_batches: Batches in flight at most; above 1 the engine uses its batch queue.
        feeds_tokens: A sampled token is fed to the next step on the executor's side, so that a
            request may be scheduled again before its token has come back.
        in_order: Steps run one after another in order of `SchedulerOutput.step`, on every rank.
            Then a freed block may be given out by the very next step. If not, freeing waits for the
            steps in flight.
        model_free: Tokens have no content (a simulation).
        adapters: Requests may name an adapter (LoRA).

    Raises:
        ConfigurationError: fewer than one batch in flight.
    """

    max_concurrent_batches: int = 1
    feeds_tokens: bool = False
    in_order: bool = True
    model_free: bool = False
    adapters: bool = False

    def __post_init__(self) -> None:
        if self.max_concurrent_batches < 1:
            raise ConfigurationError(
                f"max_concurrent_batches of an executor must be at least 1, got {self.max_concurrent_batches}"
            )


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts about the model that the engine needs.

    Attributes:
        name: As the user named it.
        max_model_len: The longest context that the model was made for, in tokens.
        vocab_size: Token ids are below this.
        eos_token_ids: Tokens with which the model ends its output.
        dtype: Data type of weights and activations, e.g. "bfloat16".
        device: Where it runs, e.g. "cpu" or "cuda:0".
    """

    name: str
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...] = ()
    dtype: str = ""
    device: str = ""


class Executor(ABC):
    """Runs steps. Subclass it. Built with weights loaded, without a KV cache.

    Life: construct, `get_kv_cache_specs` and `determine_available_memory`, `initialize_from_config`
    once, then any number of steps, then `shutdown`, after which every call raises EngineDeadError.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def capabilities(self) -> ExecutorCapabilities:
        """Constant for the life of the executor."""

    @property
    @abstractmethod
    def model_info(self) -> ModelInfo:
        """Constant for the life of the executor."""

    @abstractmethod
    def get_kv_cache_specs(self) -> Mapping[str, KVCacheSpec]:
        """One spec per layer that has a KV cache, by layer name."""

    @abstractmethod
    def determine_available_memory(self) -> int:
        """Bytes that are free for the KV cache now, measured with the weights loaded.

        Of all ranks together, as `get_kv_cache_specs` counts a block over all ranks too.
        """

    @abstractmethod
    def initialize_from_config(self, config: KVCacheConfig) -> None:
        """Allocate the KV cache and warm up. Called once, before the first step."""

    @abstractmethod
    def execute_model(self, scheduled: SchedulerOutput) -> "Future[ModelRunnerOutput | None]":
        """Submit one step and return at once; the future is done when the step is.

        A fault of one request goes into `ModelRunnerOutput.errors`; a fault of the step is the
        future's exception. Plans that schedule nothing but name finished or preempted requests must
        be obeyed and answered too.

        A result of None says that the step waits to be sampled: the engine then calls
        `sample_tokens` for it. A step that schedules tokens and whose plan sets `defer_sampling` is
        answered so; a plan without tokens never is. None may be given as soon as `sample_tokens`
        can be taken, before the forward pass has ended: then the engine schedules the next step
        while this one runs. An executor that knows nothing of `defer_sampling` samples at once, and
        its tokens are right wherever no grammar constrains them. An executor may give None unasked
        too, if it does not feed tokens or takes one batch at a time.
        """

    def sample_tokens(self, step: int, grammar: GrammarOutput | None) -> "Future[ModelRunnerOutput]":
        """Sample the step that `execute_model` answered with None, and return at once.

        Called once for each such step, in order of `SchedulerOutput.step`, after every older step
        was settled. Default: an error, for executors that never answer None.

        With `feeds_tokens`, it is called before the next `execute_model`, whose forward pass needs
        the tokens. Without, later steps may have been submitted: they compute other requests. They
        may name requests of this step as finished or preempted, and give their blocks to others. So
        whatever sampling needs (hidden states or logits, each request's parameters and counts) is
        kept from the forward pass on, for at most `max_concurrent_batches` steps; a request that is
        gone meanwhile is sampled all the same, and its token is kept or dropped by the scheduler.

        Args:
            step: Step number of the plan.
            grammar: Allowed tokens of the requests that it names; others are free.
                None: all are free.

        Returns:
            A future of the same output, with the same tokens, that `execute_model` would have
            given; its exception is a fault of the step, that of the forward pass included.

        Raises:
            EngineCoreError: the executor never answers None.
        """
        raise EngineCoreError(
            f"{type(self).__name__} cannot sample step {step}: an executor whose execute_model answers None must "
            "override sample_tokens"
        )

    def take_draft_token_ids(self) -> Mapping[str, Sequence[int]]:
        """Foreseen (speculative decoding): draft tokens that were proposed since the last call.

        By request id, in order of position, each once. Default: none.
        """
        return {}

    # -- adapters --------------------------------------------------------------------------------------------------

    def add_adapter(self, name: str, path: str) -> None:
        """Foreseen (LoRA): load an adapter, which requests may name from now on. Default: refused.

        Args:
            name: Name of the adapter in requests; one that is loaded already is replaced.
            path: Folder with its files, or an id on the hub.

        Raises:
            UtilityError: it cannot be loaded, or the executor has no adapters; says why.
        """
        raise UtilityError(f"{type(self).__name__} has no adapters: {name!r} cannot be added")

    def remove_adapter(self, name: str) -> None:
        """Foreseen (LoRA): forget an adapter that no unfinished request names. Default: refused.

        Raises:
            UtilityError: no such adapter, or the executor has none; says which there are.
        """
        raise UtilityError(f"{type(self).__name__} has no adapters: {name!r} cannot be removed")

    def list_adapters(self) -> list[str]:
        """Names of the adapters that were added, sorted. Default: none."""
        return []

    # -- workers ---------------------------------------------------------------------------------------------------

    def collective_rpc(self, method: str, *args: Any, timeout: float | None = None) -> list[Any]:
        """Call a method of every worker and return one result per rank, in order of rank.

        Workers that can be profiled offer `start_profile(folder)` and `stop_profile()`, which the
        utilities of these names call. Default: there are no workers, so there is no such method.

        Raises:
            AttributeError: no such method, named.
            TimeoutError: not all ranks answered within `timeout` seconds.
        """
        self.check_health()
        raise AttributeError(f"{type(self).__name__} has no worker with a method {method!r}")

    def register_failure_callback(self, callback: Callable[[BaseException], None]) -> None:  # noqa: B027
        """Call `callback` once, from any thread, if the executor can no longer run steps.

        The callback wakes all callers that wait for one of its futures; the futures need not be
        completed. Default: never called, for executors that fail by the exception of a step's
        future alone.
        """

    @abstractmethod
    def check_health(self) -> None:
        """Return if steps can be run.

        Raises:
            EngineDeadError: they cannot, or the executor was shut down; says why.
        """

    @abstractmethod
    def shutdown(self) -> None:
        """Release everything. May be called more than once."""
