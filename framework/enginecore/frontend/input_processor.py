"""Input processing: prompts and options, checked and turned into requests."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import msgspec

from enginecore.errors import InvalidRequestError, PluginError
from enginecore.interfaces import Tokenizer
from enginecore.messages import EngineCoreRequest, EngineInfo
from enginecore.request_checks import check_fields, check_prompt_length, check_text, check_token_ids
from enginecore.sampling import SamplingParams

RESERVED_VARIABLES = frozenset({"self", "messages", "add_generation_prompt"})
"""What a chat template is given otherwise."""


class TextPrompt(TypedDict):
    """A prompt as text."""

    prompt: str


class TokensPrompt(TypedDict, total=False):
    """A prompt as token ids. A text that comes with them is only shown."""

    prompt_token_ids: Sequence[int]
    prompt: str | None


Prompt = str | Sequence[int] | TextPrompt | TokensPrompt
Message = Mapping[str, Any]


class CommonFields(TypedDict, total=False):
    """Fields of requests beside prompt, sampling parameters and priority, alike for a whole
    batch of them.
    """

    arrival_time: float | None
    tenant: str
    deadline: float | None
    cache_salt: str | None
    adapter: str | None
    hints: dict[str, float]
    skip_prefix_cache: bool


class RequestFields(CommonFields, total=False):
    """Fields of a request beside prompt and sampling parameters. See `EngineCoreRequest` for
    what each does.
    """

    priority: float


@dataclass(frozen=True, slots=True)
class EngineInput:
    """A checked request that only lacks its id and its seed.

    Attributes:
        prompt: Text, if there was one.
        prompt_token_ids: At least one token, each in the vocabulary.
        params: `max_tokens` is set.
        fields: Fields of the request, as given.
    """

    prompt: str | None
    prompt_token_ids: list[int]
    params: SamplingParams
    fields: RequestFields = field(default_factory=RequestFields)

    def to_request(self, request_id: str, seed: int) -> EngineCoreRequest:
        """The message for the engine core. `seed` is used if the request has none of its own."""
        params = self.params if self.params.seed is not None else msgspec.structs.replace(self.params, seed=seed)
        return EngineCoreRequest(
            request_id=request_id, prompt_token_ids=self.prompt_token_ids, params=params, **self.fields
        )


def derive_seed(engine_seed: int, index: int) -> int:
    """Seed of the request that was accepted as number `index` (from 0): a value in [0, 2**63).

    The first 63 bits of blake2b("<engine_seed>/<index>"). The same engine seed and order of
    requests give the same tokens, and a request with a seed of its own takes up a number too, so
    that it does not shift the others.
    """
    digest = hashlib.blake2b(f"{engine_seed}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class InputProcessor:
    """Tokenises and checks requests against what is in force in the engine core. Holds no state of
    any request.
    """

    def __init__(self, info: EngineInfo, get_tokenizer: Callable[[], Tokenizer]) -> None:
        """`get_tokenizer` is called only for requests that need text."""
        self._info = info
        self._get_tokenizer = get_tokenizer

    def process(
        self, prompt: Prompt, params: SamplingParams | None = None, fields: RequestFields | None = None
    ) -> EngineInput:
        """Check one request. `params` None is `SamplingParams()`.

        Raises:
            InvalidRequestError: what is wrong with it, and what would be right.
        """
        fields = _checked_fields(fields or RequestFields())
        params = SamplingParams() if params is None else params
        if not isinstance(params, SamplingParams):
            raise InvalidRequestError(f"sampling_params must be SamplingParams, got {type(params).__name__}")
        check_token_ids("stop_token_ids", params.stop_token_ids, self._info)
        check_text("stop", params.stop)
        text, token_ids = _split(prompt)
        if text is not None and token_ids is None:
            token_ids = self._get_tokenizer().encode(text)
        checked_ids = self._checked_ids(token_ids, params)
        return EngineInput(text, checked_ids, self._fitted(params, len(checked_ids)), fields)

    def render_chat(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, variables: Mapping[str, Any]
    ) -> TokensPrompt:
        """The prompt for a conversation, by the model's chat template.

        Raises:
            InvalidRequestError: these are not messages, the template refuses them, or a variable
                cannot be passed.
            PluginError: the tokenizer's template gives no text.
        """
        if isinstance(messages, str) or not isinstance(messages, Sequence) or not messages:
            raise InvalidRequestError(f"a conversation must be a list of at least one message, got {messages!r:.100}")
        for message in messages:
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise InvalidRequestError(f'a message must be a dict with a "role" and "content", got {message!r:.100}')
            if isinstance(content := message.get("content"), str):
                check_text(f"what {message['role']!r} says", content)
        _check_variables(variables)
        tokenizer = self._get_tokenizer()
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=add_generation_prompt, **variables)
        if not isinstance(text, str):
            raise PluginError(f"the tokenizer's chat template must give a string, and gave {text!r:.100}")
        check_text("the conversation", text)
        # the template writes the special tokens itself
        return TokensPrompt(prompt=text, prompt_token_ids=tokenizer.encode(text, add_special_tokens=False))

    def _checked_ids(self, token_ids: object, params: SamplingParams) -> list[int]:
        if not isinstance(token_ids, Sequence) or isinstance(token_ids, str | bytes | bytearray):
            raise InvalidRequestError(
                f"a prompt must be a string, a list of token ids or a dict of these, got {type(token_ids).__name__}"
            )
        check_prompt_length(len(token_ids), params.max_tokens, self._info)  # before each of them is looked at
        if set(map(type, token_ids)) != {int}:
            position = next(i for i, token_id in enumerate(token_ids) if type(token_id) is not int)
            raise InvalidRequestError(
                f"token ids must be integers, got {token_ids[position]!r:.100} at index {position}"
            )
        check_token_ids("prompt_token_ids", token_ids, self._info)
        return list(token_ids)

    def _fitted(self, params: SamplingParams, num_prompt_tokens: int) -> SamplingParams:
        """The parameters with `max_tokens` set, for a prompt that leaves room for its output."""
        if params.max_tokens is not None:
            return params
        return msgspec.structs.replace(params, max_tokens=self._info.max_model_len - num_prompt_tokens)


def _split(prompt: object) -> tuple[str | None, object]:
    """Text and token ids of a prompt in any of its forms; the ids are yet to be checked."""
    if isinstance(prompt, str):
        check_text("the prompt", prompt)
        return prompt, None
    if not isinstance(prompt, Mapping):
        return None, prompt
    if unknown := prompt.keys() - {"prompt", "prompt_token_ids"}:
        raise InvalidRequestError(
            f'a prompt dict holds "prompt", "prompt_token_ids" or both; unknown: {sorted(map(str, unknown))}'
        )
    text, token_ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    if text is None and token_ids is None:
        raise InvalidRequestError('a prompt dict must hold "prompt" or "prompt_token_ids"')
    if text is not None and not isinstance(text, str):
        raise InvalidRequestError(f'"prompt" must be a string, got {type(text).__name__}')
    check_text("the prompt", text)
    return text, token_ids


def _check_variables(variables: object) -> None:
    if not isinstance(variables, Mapping):
        raise InvalidRequestError(f"chat_template_kwargs must be a dict, got {variables!r:.100}")
    for name in variables:
        if not isinstance(name, str):
            raise InvalidRequestError(f"chat_template_kwargs must have strings for keys, got {name!r:.100}")
        if name in RESERVED_VARIABLES:
            raise InvalidRequestError(f"chat_template_kwargs must not hold {name!r}, which has another source")


def _checked_fields(fields: RequestFields) -> RequestFields:
    if unknown := fields.keys() - RequestFields.__annotations__.keys():
        known = ", ".join(RequestFields.__annotations__)
        raise InvalidRequestError(f"a request has no field {min(map(str, unknown))!r}; there are {known}")
    try:
        checked = msgspec.convert(fields, RequestFields)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"a field of the request is wrong: {error}") from None
    check_fields(checked)
    return checked
