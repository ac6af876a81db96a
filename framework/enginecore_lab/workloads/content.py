"""Content of prompts: token ids and block hashes made from hash ids, and engine requests made from both.

A driver turns each request of a workload into what `EngineCore.add_request` takes:

    engine_request, block_hashes = to_engine_request(
        request, workload, core.info, model_free=core.executor.capabilities.model_free,
        reveal_lengths=False, longest_output=longest_output(workload),
    )
    core.add_request(engine_request, block_hashes)

**Everything here is a pure function of the request and the block sizes**: the same in every arm and every process
(cryptographic hashes, never `hash()`), and nothing is remembered between requests, since making things again is cheaper
than keeping 180,000 blocks.

* Where tokens have content, ids are expanded to token ids: block `i` of every prompt is the same tokens.
* Where they have none (`model_free`), no token is made. The prompt is a list of zeros of the right length, and block
  hashes say what is shared. They are chained over all ids before them, so that equal hashes mean equal prefixes, and
  cut for the engine's block size. Only full blocks have one, as in the engine.
"""

from hashlib import blake2b, shake_128
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from enginecore.errors import ConfigurationError
from enginecore.messages import EngineCoreRequest, EngineInfo
from enginecore.sampling import SamplingParams
from enginecore_lab.workload import Workload, WorkloadRequest

_DIGEST_BYTES = 16


def longest_output(workload: Workload) -> int:
    """Output tokens of the request that gets most."""
    return max((each.num_output_tokens for each in workload.requests), default=1)


def to_engine_request(
    request: WorkloadRequest,
    workload: Workload,
    info: EngineInfo,
    *,
    model_free: bool,
    reveal_lengths: bool,
    longest_output: int,
) -> tuple[EngineCoreRequest, list[bytes] | None]:
    """The arguments of `EngineCore.add_request` for one request of a workload.

    Where tokens have content, it gets its number of output tokens by `max_tokens`, which policies can read. Where they
    have none, every token is 0, and the request ends at the right one by a stop token that no policy can foresee:
    `max_tokens` is the longest output of the whole workload. With `reveal_lengths` it is the request's own there too.

    Args:
        request: One of the workload's.
        workload: For its block size.
        info: Facts and limits of the engine.
        model_free: Whether its executor is.
        reveal_lengths: Whether policies may read how long the output will be.
        longest_output: Value of the function of that name for the workload.

    Returns:
        The request, as one that comes when it is added and has no deadline; and its ready block hashes, None where
        tokens have content.

    Raises:
        ConfigurationError: the engine's blocks and the workload's do not fit one another.
    """
    num_output = request.num_output_tokens
    if model_free:
        prompt = [0] * request.num_prompt_tokens
        hashes = block_hashes(request, workload.block_size, info.block_size) if info.enable_prefix_caching else []
    else:
        prompt, hashes = token_ids(request, workload.block_size, info.vocab_size).tolist(), None
    hidden = model_free and not reveal_lengths
    params = SamplingParams(
        temperature=0,
        ignore_eos=True,
        detokenize=False,
        max_tokens=longest_output if hidden else num_output,
        min_tokens=num_output - 1 if hidden else 0,
        stop_token_ids=(0,) if hidden else (),
    )
    engine_request = EngineCoreRequest(
        request_id=request.request_id,
        prompt_token_ids=prompt,
        params=params,
        priority=request.priority,
        tenant=request.tenant,
    )
    return engine_request, hashes


def token_ids(request: WorkloadRequest, block_size: int, vocab_size: int) -> NDArray[np.uint32]:
    """The tokens of its prompt.

    Args:
        request: One of a workload's.
        block_size: The workload's.
        vocab_size: Token ids are below this.
    """
    wanted = request.num_prompt_tokens
    parts = [shake_128(b"block %d" % hash_id).digest(4 * block_size) for hash_id in request.hash_ids]
    num_shared = len(parts) * block_size
    if num_shared < wanted:
        own = shake_128(b"request " + request.request_id.encode())
        parts.append(own.digest(4 * (wanted - num_shared)))
    drawn = np.frombuffer(b"".join(parts), "<u4", count=wanted)
    return (drawn % vocab_size).astype(np.uint32)


def block_hashes(request: WorkloadRequest, block_size: int, engine_block_size: int) -> list[bytes]:
    """The hashes of its full blocks, as an engine cuts them: those of its prompt, and of its output if ids tell.

    Args:
        request: One of a workload's.
        block_size: The workload's; 0: no request has ids.
        engine_block_size: The engine's. One of the two must divide the other.

    Raises:
        ConfigurationError: neither does.
    """
    size = engine_block_size
    if not block_size:
        return _own_hashes(request, 0, request.num_prompt_tokens // size)
    if block_size % size and size % block_size:
        raise ConfigurationError(
            f"the engine's block_size = {size} and the workload's blocks of {block_size} tokens do not fit: what is "
            f"shared is known for whole blocks of the workload only; set block_size to a divisor of {block_size}, or a "
            "multiple of it"
        )
    num_known, num_prompt = len(request.hash_ids) * block_size, request.num_prompt_tokens
    # a last id that the prompt fills in part says nothing of what comes behind the prompt
    tells_output = num_known - num_prompt >= block_size
    num_known = min(num_known, num_prompt + (request.num_output_tokens if tells_output else 0))
    hashes = _shared_hashes(request, block_size, size, num_known // size)
    return hashes + _own_hashes(request, len(hashes), num_prompt // size)


def _shared_hashes(request: WorkloadRequest, block_size: int, size: int, count: int) -> list[bytes]:
    """The first hashes, from ids: each ends with its place in a block of the workload, as far as that has several."""
    prefixes = list(accumulate(request.hash_ids, _chained, initial=b""))[1:]
    if size >= block_size:
        step = size // block_size
        return [prefix + b"\0\0\0\0" for prefix in prefixes[step - 1 :: step][:count]]
    places = [place.to_bytes(4, "big") for place in range(block_size // size)]
    return [prefix + place for prefix in prefixes for place in places][:count]


def _chained(parent: bytes, hash_id: int) -> bytes:
    return blake2b(parent + hash_id.to_bytes(8, "big"), digest_size=_DIGEST_BYTES).digest()


def _own_hashes(request: WorkloadRequest, first: int, last: int) -> list[bytes]:
    """Hashes like no other request's, for blocks from `first` to before `last`."""
    own = blake2b(request.request_id.encode(), digest_size=_DIGEST_BYTES, person=b"request").digest()
    return [own + place.to_bytes(8, "big") for place in range(first, last)]
