"""From what a user passes to what the engine core accepts. Every refusal happens here, before anything is queued."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import msgspec

from enginecore.errors import InvalidRequestError, PluginError
from enginecore.interfaces import Tokenizer
from enginecore.messages import EngineCoreRequest, EngineInfo
from enginecore.sampling import SamplingParams

MAX_WORD_LENGTH = 256
MAX_HINTS = 64
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


_Number = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
_Word = Annotated[str, msgspec.Meta(max_length=MAX_WORD_LENGTH)]


class CommonFields(TypedDict, total=False):
    """What requests may say beside prompt, sampling parameters and priority, alike for a whole batch of them."""

    arrival_time: _Number | None
    tenant: _Word
    deadline: _Number | None
    cache_salt: _Word | None
    adapter: _Word | None
    hints: Annotated[dict[_Word, _Number], msgspec.Meta(max_length=MAX_HINTS)]
    skip_prefix_cache: bool


class RequestFields(CommonFields, total=False):
    """What a request may say beside prompt and sampling parameters. See `EngineCoreRequest` for what each does."""

    priority: _Number


@dataclass(frozen=True, slots=True)
class EngineInput:
    """A checked request that only lacks its id and its seed.

    Attributes:
        prompt: Text, if there was one.
        prompt_token_ids: At least one token, each in the vocabulary.
        params: `max_tokens` is set.
        fields: As given.
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

    The first 63 bits of blake2b("<engine_seed>/<index>"). The same engine seed and order of requests give the same
    tokens, and a request with a seed of its own takes up a number too, so that it does not shift the others.
    """
    digest = hashlib.blake2b(f"{engine_seed}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class InputProcessor:
    """Tokenises and checks requests against what is in force in the engine core. Holds no state of any request."""

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
        self._check_stop_token_ids(params)
        _check_encodable("stop", params.stop)
        text, token_ids = _split(prompt)
        if text is not None and token_ids is None:
            token_ids = self._get_tokenizer().encode(text)
        if isinstance(token_ids, Sequence):  # before each of them is looked at
            self._check_room(params, len(token_ids))
        checked_ids = self._checked_ids(token_ids)
        return EngineInput(text, checked_ids, self._fitted(params, len(checked_ids)), fields)

    def render_chat(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, variables: Mapping[str, Any]
    ) -> TokensPrompt:
        """The prompt for a conversation, by the model's chat template.

        Raises:
            InvalidRequestError: these are not messages, the template refuses them, or a variable cannot be passed.
            PluginError: the tokenizer's template gives no text.
        """
        if isinstance(messages, str) or not isinstance(messages, Sequence) or not messages:
            raise InvalidRequestError(f"a conversation must be a list of at least one message, got {messages!r:.100}")
        for message in messages:
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise InvalidRequestError(f'a message must be a dict with a "role" and "content", got {message!r:.100}')
            if isinstance(content := message.get("content"), str):
                _check_encodable(f"what {message['role']!r} says", content)
        _check_variables(variables)
        tokenizer = self._get_tokenizer()
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=add_generation_prompt, **variables)
        if not isinstance(text, str):
            raise PluginError(f"the tokenizer's chat template must give a string, and gave {text!r:.100}")
        _check_encodable("the conversation", text)
        # the template writes the special tokens itself
        return TokensPrompt(prompt=text, prompt_token_ids=tokenizer.encode(text, add_special_tokens=False))

    def _checked_ids(self, token_ids: object) -> list[int]:
        if not isinstance(token_ids, Sequence) or isinstance(token_ids, str | bytes | bytearray):
            raise InvalidRequestError(
                f"a prompt must be a string, a list of token ids or a dict of these, got {type(token_ids).__name__}"
            )
        if not token_ids:
            raise InvalidRequestError("the prompt is empty: it must have at least one token")
        kinds, limit = set(map(type, token_ids)), self._info.vocab_size
        if kinds != {int}:
            position = next(i for i, token_id in enumerate(token_ids) if type(token_id) is not int)
            raise InvalidRequestError(
                f"token ids must be integers, got {token_ids[position]!r:.100} at index {position}"
            )
        if min(token_ids) < 0 or max(token_ids) >= limit:
            position = next(i for i, token_id in enumerate(token_ids) if not 0 <= token_id < limit)
            raise InvalidRequestError(
                f"token ids must be in [0, {limit}), the vocabulary of {self._info.model}; "
                f"got {token_ids[position]} at index {position}"
            )
        return list(token_ids)

    def _fitted(self, params: SamplingParams, num_prompt_tokens: int) -> SamplingParams:
        """The parameters with `max_tokens` set, for a prompt that leaves room for its output."""
        if params.max_tokens is not None:
            return params
        return msgspec.structs.replace(params, max_tokens=self._info.max_model_len - num_prompt_tokens)

    def _check_room(self, params: SamplingParams, num_prompt_tokens: int) -> None:
        limit = self._info.max_model_len
        needed = 0 if params.max_tokens == 0 else 1
        if num_prompt_tokens + needed > limit:
            room = "nothing is generated" if needed == 0 else "one output token must fit beside it"
            raise InvalidRequestError(
                f"the prompt has {num_prompt_tokens} tokens and may have {limit - needed} "
                f"(max_model_len is {limit} and {room})"
            )

    def _check_stop_token_ids(self, params: SamplingParams) -> None:
        for token_id in params.stop_token_ids:
            if token_id >= self._info.vocab_size:
                raise InvalidRequestError(
                    f"stop_token_ids must be in [0, {self._info.vocab_size}), the vocabulary of {self._info.model}; "
                    f"got {token_id}"
                )


def check_request_id(request_id: object) -> None:
    """Raises InvalidRequestError unless it is a string of reasonable length that can be encoded."""
    if not isinstance(request_id, str) or not 0 < len(request_id) <= MAX_WORD_LENGTH:
        raise InvalidRequestError(
            f"request_id must be a string of 1 to {MAX_WORD_LENGTH} characters, got {request_id!r:.100}"
        )
    _check_encodable("request_id", request_id)


def _split(prompt: object) -> tuple[str | None, object]:
    """Text and token ids of a prompt in any of its forms; the ids are yet to be checked."""
    if isinstance(prompt, str):
        _check_encodable("the prompt", prompt)
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
    _check_encodable("the prompt", text)
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
    for name, value in checked.items():
        _check_encodable(name, value)
    return checked


def _check_encodable(name: str, value: object) -> None:
    """Refuse text that is no Unicode, which neither tokenizers nor transports can take."""
    try:
        msgspec.msgpack.encode(value)
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"{name} must be text that UTF-8 can hold: {error.object[error.start]!r} at index {error.start} is half a "
            "surrogate pair, or stands for a byte that could not be decoded"
        ) from None
