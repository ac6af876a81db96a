"""What a request must satisfy to be accepted, whatever front end it comes from."""

import math

from enginecore.errors import InvalidRequestError
from enginecore.interfaces import ExecutorCapabilities
from enginecore.messages import EngineCoreRequest, EngineInfo
from enginecore.sampling import SamplingParams


def checked_params(
    request: EngineCoreRequest, info: EngineInfo, capabilities: ExecutorCapabilities, *, has_content: bool = True
) -> SamplingParams:
    """The sampling parameters of a request that can be run. Trusts no front end.

    Args:
        request: What was asked.
        info: The limits in force.
        capabilities: What the executor declares.
        has_content: False: nobody will look at its token ids, only at how many they are.

    Raises:
        InvalidRequestError: it cannot; says why.
    """
    params = request.params
    if not isinstance(params, SamplingParams):
        raise InvalidRequestError(f"request {request.request_id!r}: pooling is not supported yet; use SamplingParams")
    if request.data_parallel_rank is not None:
        raise InvalidRequestError(
            f"request {request.request_id!r}: data_parallel_rank = {request.data_parallel_rank}, "
            "but data parallelism is not supported yet; leave it None"
        )
    if request.adapter is not None and not capabilities.adapters:
        raise InvalidRequestError(
            f"request {request.request_id!r}: adapter = {request.adapter!r}, but executor "
            f"{info.components['executor']!r} knows no adapters; leave it None"
        )
    _check_fields(request)
    check_length(request.request_id, len(request.prompt_token_ids), params.max_tokens, info)
    if has_content:
        _check_token_ids(request, info)
    _check_sampling(request, params, info)
    return params


def _check_fields(request: EngineCoreRequest) -> None:
    """Numbers that policies order by: not a number would break the order of everybody. Texts that cross the wire."""
    texts = {"request_id": request.request_id, "cache_salt": request.cache_salt, "adapter": request.adapter}
    for name, text in (*texts.items(), ("tenant", request.tenant), *(("hints", hint) for hint in request.hints)):
        if text is not None and not _is_unicode(text):
            raise InvalidRequestError(
                f"request {request.request_id!r}: {name} must be text that UTF-8 can hold, got {text!r}"
            )
    if request.client_index < 0:
        raise InvalidRequestError(
            f"request {request.request_id!r}: client_index must be at least 0, got {request.client_index}"
        )
    numbers: dict[str, float | None] = {
        "arrival_time": request.arrival_time,
        "priority": request.priority,
        "deadline": request.deadline,
    }
    numbers.update({f"hints[{name!r}]": value for name, value in request.hints.items()})
    for name, value in numbers.items():
        if value is not None and not math.isfinite(value):
            raise InvalidRequestError(f"request {request.request_id!r}: {name} must be finite, got {value}")


def _check_sampling(request: EngineCoreRequest, params: SamplingParams, info: EngineInfo) -> None:
    if params.seed is None and not params.greedy:
        raise InvalidRequestError(
            f"request {request.request_id!r}: params.seed must be set by the front end, so that the tokens do not "
            "depend on who samples them"
        )
    if params.stop_token_ids and max(params.stop_token_ids) >= info.vocab_size:
        raise InvalidRequestError(
            f"request {request.request_id!r}: stop token id {max(params.stop_token_ids)} is outside the vocabulary "
            f"[0, {info.vocab_size})"
        )


def check_block_hashes(
    request: EngineCoreRequest, params: SamplingParams, hashes: list[bytes], info: EngineInfo, *, takes_any: bool
) -> None:
    """Ready block hashes: whether they may stand in for the token ids of this request.

    Raises:
        InvalidRequestError: they may not; says why.
    """
    name = f"request {request.request_id!r}"
    if not takes_any:
        raise InvalidRequestError(
            f"{name}: block_hashes need an executor whose tokens have no content (model_free) and a KV cache manager "
            f"that declares 'ready_hashes'; {info.components['executor']!r} and "
            f"{info.components['kv_cache_manager']!r} are not both so: leave block_hashes None"
        )
    if request.cache_salt is not None or request.adapter is not None:
        raise InvalidRequestError(
            f"{name}: block_hashes cover salt and adapter too: leave cache_salt = {request.cache_salt!r} and adapter = "
            f"{request.adapter!r} None, and give requests that share nothing different hashes"
        )
    if not set(map(type, hashes)) <= {bytes} or len(set(hashes)) != len(hashes):
        raise InvalidRequestError(f"{name}: block_hashes must be bytes, each different since it covers those before it")
    asked = info.max_model_len if params.max_tokens is None else len(request.prompt_token_ids) + params.max_tokens
    most = min(asked, info.max_model_len) // info.block_size
    if len(hashes) > most:
        raise InvalidRequestError(
            f"{name}: {len(hashes)} block_hashes, but prompt and output fill at most {most} blocks of "
            f"{info.block_size} tokens: were they made for another block size?"
        )


def check_length(request_id: str, num_prompt_tokens: int, max_tokens: int | None, info: EngineInfo) -> None:
    """Whether a prompt of so many tokens can be run. Asked before there is one by those who would have to make it.

    Raises:
        InvalidRequestError: it cannot; says why.
    """
    if not num_prompt_tokens:
        raise InvalidRequestError(f"request {request_id!r}: the prompt is empty; it needs at least one token")
    room = 0 if max_tokens == 0 else 1
    if num_prompt_tokens + room > info.max_model_len:
        raise InvalidRequestError(
            f"request {request_id!r}: the prompt has {num_prompt_tokens} tokens, and max_model_len is "
            f"{info.max_model_len}, output included: at most {info.max_model_len - room}"
        )


def _check_token_ids(request: EngineCoreRequest, info: EngineInfo) -> None:
    tokens = request.prompt_token_ids
    low, high = min(tokens), max(tokens)
    if low < 0 or high >= info.vocab_size:
        raise InvalidRequestError(
            f"request {request.request_id!r}: token id {low if low < 0 else high} is outside the vocabulary "
            f"[0, {info.vocab_size})"
        )


def _is_unicode(text: str) -> bool:
    """Lone surrogates are no characters, and no codec carries them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
