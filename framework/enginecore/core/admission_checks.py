"""What a request must satisfy to be accepted, whatever front end it comes from."""

from enginecore.errors import InvalidRequestError
from enginecore.messages import EngineCoreRequest, EngineInfo
from enginecore.sampling import SamplingParams


def checked_params(request: EngineCoreRequest, info: EngineInfo) -> SamplingParams:
    """The sampling parameters of a request that can be run.

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
    _check_prompt(request, params, info)
    return params


def _check_prompt(request: EngineCoreRequest, params: SamplingParams, info: EngineInfo) -> None:
    tokens = request.prompt_token_ids
    if not tokens:
        raise InvalidRequestError(f"request {request.request_id!r}: the prompt is empty; it needs at least one token")
    room = 0 if params.max_tokens == 0 else 1
    if len(tokens) + room > info.max_model_len:
        raise InvalidRequestError(
            f"request {request.request_id!r}: the prompt has {len(tokens)} tokens, and max_model_len is "
            f"{info.max_model_len}, output included: at most {info.max_model_len - room}"
        )
    low, high = min(tokens), max(tokens)
    if low < 0 or high >= info.vocab_size:
        raise InvalidRequestError(
            f"request {request.request_id!r}: token id {low if low < 0 else high} is outside the vocabulary "
            f"[0, {info.vocab_size})"
        )
