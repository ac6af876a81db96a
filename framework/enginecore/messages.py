"""Messages between front end, engine core and workers.

Every type is a `msgspec.Struct` that is encoded as an array: fields are added at the end only, and
what is on the wire in one transport is on the wire in all.
"""

import enum
from typing import Any

import msgspec

from enginecore.sampling import PoolingParams, SamplingParams

BlockIds = tuple[list[int], ...]
"""Block ids of one request, one list per KV cache group, each in order of position."""


class FinishReason(enum.IntEnum):
    """Why a request ended. `str()` gives the name that users see."""

    STOP = 0
    LENGTH = 1
    ABORT = 2
    ERROR = 3

    def __str__(self) -> str:
        return self.name.lower()


class Message(msgspec.Struct, array_like=True, omit_defaults=True):
    """Base of all payloads."""


# -- front end <-> engine core ---------------------------------------------------------------------


class EngineCoreRequest(Message, kw_only=True):
    """One request, as the front end's InputProcessor hands it to the engine core.

    Attributes:
        request_id: Unique among live requests.
        prompt_token_ids: At least one token.
        params: Sampling parameters; `seed` is set, so that the tokens do not depend on who samples
            them.
        arrival_time: Seconds on the engine core's clock; None: the moment it is added.
        client_index: The front end to which outputs go.
        priority: Smaller is more urgent. Read by policies that know priorities.
        tenant: The user or customer of the request. Read by policies that share between tenants.
        deadline: Seconds on the engine core's clock by which the first token is wanted.
        cache_salt: Part of the cache identity: only requests of the same salt share KV blocks.
        adapter: Foreseen (LoRA): part of the cache identity. Refused by real executors until built.
        data_parallel_rank: Foreseen. Refused until built.
        hints: Numbers for policies (predicted length, job class ...). Not sent to executors.
        skip_prefix_cache: Neither reads nor feeds the prefix cache.
    """

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams | PoolingParams
    arrival_time: float | None = None
    client_index: int = 0
    priority: float = 0
    tenant: str = ""
    deadline: float | None = None
    cache_salt: str | None = None
    adapter: str | None = None
    data_parallel_rank: int | None = None
    hints: dict[str, float] = {}
    skip_prefix_cache: bool = False


class PositionLogprobs(Message, kw_only=True):
    """Log-probabilities at one output position.

    Attributes:
        token_ids: The sampled token first, then the likeliest in order.
        logprobs: Natural logarithm of each one's probability.
        sampled_rank: How likely the sampled token was among all: 1 is the likeliest.
    """

    token_ids: list[int]
    logprobs: list[float]
    sampled_rank: int


class EngineCoreOutput(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """Output of one step for one request. Only the last one has a `finish_reason`.

    Attributes:
        request_id: The request.
        new_token_ids: Accepted tokens, in order; may be empty in the last output.
        finish_reason: Set in the last output.
        stop_reason: The stop token id that ended it, if one did.
        error: Message for the client, where `finish_reason` is ERROR.
        logprobs: One entry per new token, if asked for.
        num_cached_tokens: Prompt tokens found in the prefix cache at first admission; in the first
            output only.
    """

    request_id: str
    new_token_ids: list[int]
    finish_reason: FinishReason | None = None
    stop_reason: int | None = None
    error: str | None = None
    logprobs: list[PositionLogprobs] | None = None
    num_cached_tokens: int = 0


class SchedulerStats(Message, kw_only=True):
    """Counters since start, and gauges. Cheap to make; read by observers, not per token."""

    step: int = 0
    num_running: int = 0
    num_waiting: int = 0
    num_preemptions: int = 0
    num_blocks: int = 0
    num_free_blocks: int = 0
    num_cached_blocks: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0


class LoopStats(Message, kw_only=True):
    """Messages moved by the IO threads of a busy loop since start; those while a step ran."""

    num_steps: int = 0
    num_received: int = 0
    num_received_in_step: int = 0
    num_sent: int = 0
    num_sent_in_step: int = 0


class EngineCoreOutputs(Message, kw_only=True):
    """One step's outputs for one client.

    Attributes:
        outputs: One entry per request that has tokens or has ended.
        engine_index: Foreseen (data parallel): which engine.
        wave: Foreseen (data parallel).
        timestamp: Seconds on the engine core's clock when the step was settled.
        idle: The engine core has nothing left to do or to send.
    """

    outputs: list[EngineCoreOutput] = []
    engine_index: int = 0
    wave: int = 0
    timestamp: float = 0.0
    idle: bool = False


class EngineInfo(Message, kw_only=True):
    """Facts and limits in force, as found at start-up: the one source of truth for front ends.

    Attributes:
        model: Name or path of the model.
        max_model_len: Tokens of one request at most, prompt and output together.
        vocab_size: Token ids are below this.
        eos_token_ids: The model's own end-of-sequence tokens.
        num_blocks: KV blocks in the pool.
        block_size: Tokens per block.
        max_num_seqs: Running requests at most.
        max_num_batched_tokens: Tokens in a step at most.
        enable_prefix_caching: As in force.
        enable_chunked_prefill: As in force.
        max_concurrent_batches: Batches in flight at most.
        components: Name of the component that runs, by kind.
        seed: The engine's seed.
        dtype: Data type of the weights and activations.
        device: Where the model runs.
    """

    model: str
    max_model_len: int
    vocab_size: int
    eos_token_ids: list[int]
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    max_concurrent_batches: int
    components: dict[str, str]
    seed: int
    dtype: str = ""
    device: str = ""


# -- engine core <-> workers -----------------------------------------------------------------------


class NewRequestData(Message, kw_only=True):
    """A request that workers do not know: admitted for the first time, or resumed.

    Attributes:
        request_id: Unique among the worker's requests, once those that the same step names as gone
            are gone.
        token_ids: All known tokens: prompt, then outputs so far.
        num_prompt_tokens: How many of them are the prompt.
        params: As in the request.
        block_ids: All of its blocks, per KV cache group.
        num_computed_tokens: Tokens whose KV is in these blocks already (prefix hits).
        resumed: Whether it ran before.
        cache_salt: Part of the cache identity.
        adapter: Part of the cache identity.
    """

    request_id: str
    token_ids: list[int]
    num_prompt_tokens: int
    params: SamplingParams
    block_ids: BlockIds
    num_computed_tokens: int = 0
    resumed: bool = False
    cache_salt: str | None = None
    adapter: str | None = None


class RequestDelta(Message, kw_only=True):
    """Changes of a request that workers know. A request that only decodes on has none.

    Attributes:
        request_id: The request.
        new_block_ids: Blocks added at the end, per KV cache group.
        num_computed_tokens: Tokens scheduled before this step. Foreseen (speculative decoding):
            lower than the worker's own count means that tokens were rolled back.
    """

    request_id: str
    new_block_ids: BlockIds
    num_computed_tokens: int


class SchedulerOutput(Message, kw_only=True):
    """The plan of a step: only what changed. What is gone applies before what is new.

    Attributes:
        step: Serial number; every rank executes steps in this order.
        num_scheduled_tokens: Tokens to compute per request, each at least 1; in order of the batch.
            A request whose last known token is computed here is sampled.
        new_requests: Requests that the worker does not know.
        deltas: Changes of those that it knows.
        finished_ids: Ended since the last plan: forget them. Sent even when nothing is scheduled.
        preempted_ids: Lost their blocks since the last plan: forget them; they come back as new.
        extensions: For plugins: plain msgpack values under the plugin's name.
        defer_sampling: Run the forward pass of this step now, and sample it when
            `Executor.sample_tokens` asks.
    """

    step: int
    num_scheduled_tokens: dict[str, int] = {}
    new_requests: list[NewRequestData] = []
    deltas: list[RequestDelta] = []
    finished_ids: list[str] = []
    preempted_ids: list[str] = []
    extensions: dict[str, Any] = {}
    defer_sampling: bool = False

    @property
    def total_num_scheduled_tokens(self) -> int:
        """Tokens that this step computes."""
        return sum(self.num_scheduled_tokens.values())

    @property
    def is_empty(self) -> bool:
        """Whether it asks nothing of workers: but for fields that qualify others, all are defaults.

        A field that is added counts unless it is named here.
        """
        if self.num_scheduled_tokens:  # nearly every plan
            return False
        return self == type(self)(step=self.step, extensions=self.extensions, defer_sampling=self.defer_sampling)


class GrammarOutput(Message, kw_only=True):
    """Foreseen (structured output): token bitmasks of constrained requests of one step."""

    step: int
    request_ids: list[str] = []
    bitmask: bytes = b""


class ModelRunnerOutput(Message, kw_only=True):
    """Result of a step.

    Rows of requests that were not sampled (chunks of a prompt) may be left out or be empty.

    Attributes:
        step: Number of the step whose plan it answers.
        request_ids: The requests of the rows.
        sampled_token_ids: Tokens of each, in the same order. Exactly one for now; several are
            foreseen (speculative decoding).
        logprobs: Per request that asked for them, one entry per token.
        errors: A fault that ends only the request named.
        extensions: As in the plan.
    """

    step: int
    request_ids: list[str] = []
    sampled_token_ids: list[list[int]] = []
    logprobs: dict[str, list[PositionLogprobs]] = {}
    errors: dict[str, str] = {}
    extensions: dict[str, Any] = {}
