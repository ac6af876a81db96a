"""Checks of a request at the door of the engine core, whatever front end it comes from."""

from enginecore.errors import InvalidRequestError
from enginecore.interfaces import ExecutorCapabilities
from enginecore.messages import EngineCoreRequest, EngineInfo
from enginecore.request_checks import check_fields, check_prompt_length, check_text, check_token_ids, naming_request
from enginecore.sampling import SamplingParams

_CHECKED_FIELDS = ("tenant", "cache_salt", "adapter", "arrival_time", "priority", "deadline", "hints")


def checked_params(
    request: EngineCoreRequest, info: EngineInfo, capabilities: ExecutorCapabilities, *, has_content: bool = True
) -> SamplingParams:
    """The sampling parameters of a request that can be run. Trusts no front end.

    Args:
        request: The request as it arrived.
        info: The limits in force.
        capabilities: Capabilities of the executor.
        has_content: False: only the number of its token ids counts, and their values are not looked
            at.

    Raises:
        InvalidRequestError: it cannot; says why.
    """
    with naming_request(request.request_id):
        params = _sampling_params(request)
        _check_foreseen(request, info, capabilities)
        check_text("request_id", request.request_id)
        check_fields({name: getattr(request, name) for name in _CHECKED_FIELDS})
        if request.client_index < 0:
            raise InvalidRequestError(f"client_index must be at least 0, got {request.client_index}")
        check_prompt_length(len(request.prompt_token_ids), params.max_tokens, info)
        if has_content:
            check_token_ids("prompt_token_ids", request.prompt_token_ids, info)
        check_token_ids("stop_token_ids", params.stop_token_ids, info)
    return params


def _sampling_params(request: EngineCoreRequest) -> SamplingParams:
    params = request.params
    if not isinstance(params, SamplingParams):
        raise InvalidRequestError("pooling is not supported yet; use SamplingParams")
    if params.seed is None and not params.greedy:
        raise InvalidRequestError(
            "params.seed must be set by the front end, so that the tokens do not depend on who samples them"
        )
    return params


def _check_foreseen(request: EngineCoreRequest, info: EngineInfo, capabilities: ExecutorCapabilities) -> None:
    """Refuse what this engine cannot do."""
    if request.data_parallel_rank is not None:
        raise InvalidRequestError(
            f"data_parallel_rank = {request.data_parallel_rank}, but data parallelism is not supported yet; "
            "leave it None"
        )
    if request.adapter is not None and not capabilities.adapters:
        raise InvalidRequestError(
            f"adapter = {request.adapter!r}, but executor {info.components['executor']!r} knows no adapters; "
            "leave it None"
        )


def check_block_hashes(
    request: EngineCoreRequest, params: SamplingParams, hashes: list[bytes], info: EngineInfo, *, takes_any: bool
) -> None:
    """Ready block hashes: whether they may stand in for the token ids of this request.

    Raises:
        InvalidRequestError: they may not; says why.
    """
    with naming_request(request.request_id):
        if not takes_any:
            raise InvalidRequestError(
                "block_hashes need an executor whose tokens have no content (model_free) and a KV cache manager "
                f"that declares 'ready_hashes'; {info.components['executor']!r} and "
                f"{info.components['kv_cache_manager']!r} are not both so: leave block_hashes None"
            )
        if request.cache_salt is not None or request.adapter is not None:
            raise InvalidRequestError(
                f"block_hashes cover salt and adapter too: leave cache_salt = {request.cache_salt!r} and adapter = "
                f"{request.adapter!r} None, and give requests that share nothing different hashes"
            )
        if not set(map(type, hashes)) <= {bytes} or len(set(hashes)) != len(hashes):
            raise InvalidRequestError("block_hashes must be bytes, each different since it covers those before it")
        asked = info.max_model_len if params.max_tokens is None else len(request.prompt_token_ids) + params.max_tokens
        most = min(asked, info.max_model_len) // info.block_size
        if len(hashes) > most:
            raise InvalidRequestError(
                f"{len(hashes)} block_hashes, but prompt and output fill at most {most} blocks of "
                f"{info.block_size} tokens: were they made for another block size?"
            )
