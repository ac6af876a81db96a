"""The interface of ranks, as the executors use them. Free of torch."""

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping, Sequence
from typing import Any

from enginecore.errors import ConfigurationError, EngineCoreError
from enginecore.interfaces import KVCacheConfig, KVCacheSpec
from enginecore.messages import GrammarOutput, Message, ModelRunnerOutput, SchedulerOutput


class RankInfo(Message):
    """What a loaded rank says about itself.

    Attributes:
        dtype: Type of weights and activations, e.g. "bfloat16".
        device: Where the rank runs, e.g. "cpu" or "cuda:0".
        page_sizes: Bytes that one KV block takes on this rank, by name of the layer.
    """

    dtype: str
    device: str
    page_sizes: dict[str, int]


class Rank(ABC):
    """One rank with its weights loaded. All ranks of a model get the same calls in the same order.

    A step fails by an exception, after which the rank is of no more use; an exception of `call`
    fails the call only.
    """

    @property
    @abstractmethod
    def info(self) -> RankInfo:
        """Constant."""

    @abstractmethod
    def measure_free_memory(self) -> int:
        """Bytes that are free for the KV cache. Before `initialize_kv_cache`."""

    @abstractmethod
    def initialize_kv_cache(self, num_blocks: int) -> None:
        """Allocate the KV cache and run one token, which makes the kernels ready."""

    @abstractmethod
    def execute_model(self, plan: SchedulerOutput) -> ModelRunnerOutput | None:
        """Run a step. None: another rank has the output, or the step waits for `sample_tokens`."""

    @abstractmethod
    def sample_tokens(self, step: int) -> ModelRunnerOutput | None:
        """Sample a step whose plan deferred it. None: another rank has the output."""

    @abstractmethod
    def fill_tokens(self, step: int, token_ids: list[int]) -> None:
        """Take the tokens that the last stage sampled in an earlier step, one per sampled row."""

    @abstractmethod
    def call(self, method: str, args: Sequence[Any]) -> Any:
        """Call one of the methods that `Executor.collective_rpc` reaches.

        Raises:
            AttributeError: there is no such method; names those that there are.
        """

    def shutdown(self) -> None:
        """Release what outlives an object that is merely dropped."""
        return


def is_deferred(plan: SchedulerOutput) -> bool:
    """Whether the step waits to be sampled. A step without tokens is answered at once."""
    return plan.defer_sampling and bool(plan.num_scheduled_tokens)


def refuse_sampling(step: int, deferred: Container[int], grammar: GrammarOutput | None) -> EngineCoreError | None:
    """Why a step cannot be sampled; None: it can. `deferred`: the steps that wait."""
    if step not in deferred:
        return EngineCoreError(f"step {step} does not wait to be sampled")
    if grammar is not None and grammar.request_ids:
        return EngineCoreError(f"no grammar can be followed here, and step {step} has one for {grammar.request_ids}")
    return None


def check_kv_cache(config: KVCacheConfig, specs: Mapping[str, KVCacheSpec]) -> None:
    """Refuse a KV cache that is not that of the specs.

    Raises:
        ConfigurationError: it has other layers, several groups, or another block size.
    """
    if len(config.groups) != 1 or set(config.groups[0]) != set(specs):
        raise ConfigurationError(
            f"the KV cache must be one group of the {len(specs)} layers that were specified, "
            f"got {len(config.groups)} groups of {[len(group) for group in config.groups]} layers"
        )
    if {config.block_size} != (sizes := {spec.block_size for spec in specs.values()}):
        raise ConfigurationError(
            f"the KV cache has block_size {config.block_size}, the executor was built for {', '.join(map(str, sizes))}"
        )
