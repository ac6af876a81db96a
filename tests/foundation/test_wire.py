"""What front end and engine core say to each other: it arrives as it was, or somebody is told why not."""

import ast
import enum
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import enginecore
from enginecore import messages, sampling, wire
from enginecore.errors import InvalidRequestError
from enginecore.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason
from enginecore.sampling import SamplingParams
from enginecore.wire import (
    SCHEMA,
    AbortRequests,
    AddRequest,
    ClientMessage,
    Dead,
    ServerMessage,
    StepOutputs,
    UtilityCall,
    UtilityReply,
    Welcome,
    WireError,
    decode_client_message,
    decode_server_message,
    encode,
    schema_of,
)

# -- round trips -----------------------------------------------------------------------------------------------------

PARAMS: dict[str, Any] = {
    "n": 1,  # nothing else is allowed yet
    "temperature": 0.5,
    "top_p": 0.25,
    "top_k": 7,
    "seed": -(1 << 63),
    "max_tokens": 99,
    "min_tokens": 3,
    "stop": ("a", "\N{GRINNING FACE}"),
    "stop_token_ids": (5, 6),
    "ignore_eos": True,
    "include_stop_str_in_output": True,
    "skip_special_tokens": False,
    "detokenize": True,  # False goes with no stop strings: tested apart
    "logprobs": 20,
}


def filled(kind: Any) -> Any:
    """A value of a type, by what msgspec says of it; in a struct each field differs from its default."""
    match kind:
        case msgspec.inspect.StructType() if kind.cls is SamplingParams:
            assert set(PARAMS) == set(SamplingParams.__struct_fields__)
            return SamplingParams(**PARAMS)
        case msgspec.inspect.StructType():
            values = {field.name: filled(field.type) for field in kind.fields}
            for field in kind.fields:
                assert values[field.name] != field.default, field
            return kind.cls(**values)
        case msgspec.inspect.UnionType():
            return filled(kind.types[0])
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
            return [filled(kind.item_type), filled(kind.item_type)]
        case msgspec.inspect.DictType():
            return {filled(kind.key_type): filled(kind.value_type)}
        case msgspec.inspect.EnumType():
            return list(kind.cls)[-1]
    samples: dict[Any, Any] = {
        msgspec.inspect.IntType: 7,
        msgspec.inspect.FloatType: 7.5,
        msgspec.inspect.BoolType: True,
        msgspec.inspect.StrType: "t\N{LATIN SMALL LETTER E WITH ACUTE}xt",
        msgspec.inspect.AnyType: [1, -1.5, "x", b"\x00", None, {"k": [True]}, {5: 6}],
    }
    return samples[type(kind)]


def decoder_of(message: Any) -> Callable[[Any], Any]:
    return decode_client_message if type(message) in get_args(ClientMessage) else decode_server_message


@pytest.mark.parametrize("kind", [*get_args(ClientMessage), *get_args(ServerMessage)])
def test_every_field_of_every_message_arrives_as_it_was(kind: type) -> None:
    message = filled(msgspec.inspect.type_info(kind))
    assert decoder_of(message)(encode(message)) == message


@pytest.mark.parametrize("kind", [*get_args(ClientMessage), *get_args(ServerMessage)])
def test_defaults_arrive_as_defaults(kind: type) -> None:
    struct_type: Any = msgspec.inspect.type_info(kind)
    needed = [field for field in struct_type.fields if field.required]
    message = kind(**{field.name: filled(field.type) for field in needed})
    assert decoder_of(message)(encode(message)) == message


def test_parameters_that_exclude_others_arrive_too() -> None:
    params = SamplingParams(detokenize=False, max_tokens=None, min_tokens=9, stop_token_ids=(1,))
    request = EngineCoreRequest(request_id="r", prompt_token_ids=[1], params=params)
    arrived = decode_client_message(encode(AddRequest(request)))
    assert isinstance(arrived, AddRequest)
    assert arrived.request.params == params
    assert isinstance(arrived.request.params, SamplingParams)
    assert arrived.request.params.stop_token_ids == (1,)


def test_reasons_arrive_as_reasons() -> None:
    outputs = [EngineCoreOutput(str(reason), [], reason) for reason in FinishReason]
    arrived = decode_server_message(encode(StepOutputs(EngineCoreOutputs(outputs=outputs))))
    assert isinstance(arrived, StepOutputs)
    assert [output.finish_reason for output in arrived.outputs.outputs] == [0, 1, 2, 3]
    assert all(type(output.finish_reason) is FinishReason for output in arrived.outputs.outputs)


def test_each_encoding_is_a_new_one() -> None:
    message = Dead("why")
    first, second = encode(message), encode(message)
    assert first[0] is not second[0]
    assert first == second


# -- arguments and results -------------------------------------------------------------------------------------------


def sent(*args: Any) -> list[Any]:
    message = decode_client_message(encode(UtilityCall(1, "x", list(args))))
    assert isinstance(message, UtilityCall)
    return message.args


def test_numbers_and_texts_of_numpy_arrive_as_plain_ones() -> None:
    arrived = sent(np.float32(0.5), np.int8(-1), np.bool_(True), np.str_("s"), np.bytes_(b"b"))
    assert arrived == [0.5, -1, True, "s", b"b"]
    assert [type(value) for value in arrived] == [float, int, bool, str, bytes]


def explode() -> None:
    raise AssertionError("it was unpickled")


class Loaded:
    """Whoever unpickles it, runs it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (explode, ())


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (np.arange(3), "ndarray"),
        (np.array(3.5), "ndarray"),
        (np.array([object()]), "ndarray"),
        (np.ma.array([1, 2], mask=[False, True]), "MaskedArray"),
        (np.longdouble(1), "longdouble"),
        (np.datetime64("2020-01-01"), "datetime64"),
        (np.dtype("i4"), "Int32DType"),
        (lambda: 0, "function"),
        (object(), "object"),
        (Loaded(), "Loaded"),
        (ValueError("x"), "ValueError"),
        (1j, "complex"),
        (1 << 64, "ints"),
        ("\ud800", "surrogates"),
        ({1.5: {(1, 2): object()}}, "object"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.parametrize(
    "around", [lambda value: UtilityCall(1, "x", [value]), lambda value: UtilityReply(1, [[value]])]
)
def test_what_has_no_plain_form_is_refused_by_the_sender(around: Any, value: object, what: str) -> None:
    with pytest.raises(WireError, match=f"cannot be sent to another process: .*{what}"):
        encode(around(value))


def test_a_value_that_holds_itself_is_refused_by_the_sender() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(WireError, match="recursion"):
        encode(UtilityReply(1, value))


def test_an_output_that_holds_a_number_of_numpy_is_refused_by_the_sender() -> None:
    output = EngineCoreOutput("r", [np.int64(3)])  # type: ignore[list-item]
    with pytest.raises(WireError, match="int64"):
        encode(StepOutputs(EngineCoreOutputs(outputs=[output])))


# -- what makes no sense ---------------------------------------------------------------------------------------------


def pack(*parts: Any) -> bytes:
    return msgspec.msgpack.encode(list(parts))


TRUNCATED_CALL = b"\x94\x04\x01\xa1x"  # a call of "x" whose arguments are missing


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([], "a message of 0 frames"),
        ([b"", b""], "a message of 2 frames"),
        ([b""], "truncated"),
        ([b"\xc1"], "malformed"),
        ([pack()], "length"),
        ([pack(0)], "Invalid value"),
        ([pack(99, "x")], "Invalid value"),
        ([pack("1", "x")], "Expected `int`"),
        ([b"\x01"], "Expected `array`"),
        ([msgspec.msgpack.encode({"a": 1})], "Expected `array`"),
        ([pack(5) + b"\x00"], "trailing"),
        ([pack(1)], "length"),
        ([pack(1, 3)], "Expected `str`"),
        ([pack(3, "abc")], "Expected `array`"),
        ([pack(3, [1])], "Expected `str`"),
        ([pack(2, [7, [1], ["sampling"]])], "Expected `str`"),
        ([TRUNCATED_CALL], "truncated"),
        ([TRUNCATED_CALL + b"\xdd\xff\xff\xff\xff"], "truncated"),
        ([TRUNCATED_CALL + b"\x91\xdf\xff\xff\xff\xff"], "truncated"),
        ([TRUNCATED_CALL + b"\x91\xdb\xff\xff\xff\xff"], "truncated"),
        ([TRUNCATED_CALL + b"\x91\xc6\xff\xff\xff\xff"], "truncated"),
        ([TRUNCATED_CALL + b"\x91" * 100_000], "recursion"),
        ([TRUNCATED_CALL + b"\x91\x81\x80\x00"], "hashable"),
        ([TRUNCATED_CALL + b"\x91\xa3\xed\xa0\x80"], "UTF-8"),
        ([TRUNCATED_CALL + b"\x91\xc7\x0c\xff" + b"\xff" * 12], "timestamp"),
        ([pickle.dumps(Loaded())], "malformed|Expected|truncated|trailing"),
    ],
)
def test_what_cannot_be_read_is_a_wire_error(frames: list[bytes], message: str) -> None:
    with pytest.raises(WireError, match=message) as raised:
        decode_client_message(frames)
    assert raised.value.request_id is None


@pytest.mark.parametrize("code", [1, 9])
def test_an_extension_ends_the_call_that_carries_it(code: int) -> None:
    with pytest.raises(WireError, match=f"unknown extension type {code}") as raised:
        decode_client_message([pack(4, 17, "name", [msgspec.msgpack.Ext(code, b"\x01")])])
    assert raised.value.call_id == 17


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n": 10**6}, "n must be 1 .*got 1000000"),
        ({"logprobs": 21}, "logprobs must be None or an integer in"),
        ({"logprobs": -1}, "logprobs must be None or an integer in"),
        ({"stop": ["s"] * 10**5}, "at most 64 strings, got '100000 strings'"),
        ({"stop": ["s" * 10**6]}, "strings of 1 to 1024 characters"),
        ({"stop_token_ids": [1] * 10**5}, "at most 256 ids"),
        ({"temperature": float("nan")}, "temperature must be a number"),
        ({"max_tokens": -1}, "max_tokens must be"),
        ({"seed": 1 << 63}, "seed must be"),
        ({"top_p": "x"}, "Expected `float`, got `str`"),
    ],
)
def test_parameters_out_of_range_name_their_request(fields: dict[str, Any], message: str) -> None:
    values = {**msgspec.structs.asdict(SamplingParams()), **fields}
    frame = pack(2, ["r-1", [1, 2, 3], ["sampling", *values.values()]])
    with pytest.raises(WireError, match=message) as raised:
        decode_client_message([frame])
    assert raised.value.request_id == "r-1"
    assert len(str(raised.value)) <= 1000


@pytest.mark.parametrize(
    ("prompt", "message"),
    [("text", "got `str`"), ([1.5], "got `float`"), ([1, None], "got `None`"), ([1 << 63, "x"], "got `str`")],
)
def test_a_prompt_that_is_none_names_its_request(prompt: Any, message: str) -> None:
    with pytest.raises(WireError, match=message) as raised:
        decode_client_message([pack(2, ["r-1", prompt, ["sampling"]])])
    assert raised.value.request_id == "r-1"


@pytest.mark.parametrize("call_id", [True, 1.0, "1", None, [1]])
def test_a_call_whose_id_is_none_is_about_no_call(call_id: Any) -> None:
    with pytest.raises(WireError) as raised:
        decode_client_message([pack(4, call_id, 5, [])])
    assert raised.value.call_id is None


def real_frames() -> list[list[bytes]]:
    """All messages of both directions, as a sender wrote them."""
    kinds = (*get_args(ClientMessage), *get_args(ServerMessage))
    everything = [filled(msgspec.inspect.type_info(kind)) for kind in kinds]
    everything += [UtilityCall(1, "x", [4, [0.5, "y"]]), AbortRequests(["a", "b"])]
    return [[bytes(frame) for frame in encode(message)] for message in everything]


def check_read_or_refused(frames: list[bytes]) -> None:
    for decode in (decode_client_message, decode_server_message):
        with suppress(WireError):
            encode(decode(frames))  # what was read can be written


@settings(deadline=None, max_examples=150)
@given(st.lists(st.binary(max_size=40), max_size=3))
def test_random_bytes_are_read_or_refused(frames: list[bytes]) -> None:
    check_read_or_refused(frames)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_messages_with_bytes_changed_cut_or_added_are_read_or_refused(data: st.DataObject) -> None:
    frames = list(data.draw(st.sampled_from(real_frames())))
    for _ in range(data.draw(st.integers(1, 4))):
        which = data.draw(st.integers(0, len(frames) - 1))
        at = data.draw(st.integers(0, len(frames[which])))
        until = data.draw(st.integers(at, min(at + 3, len(frames[which]))))
        frames[which] = frames[which][:at] + data.draw(st.binary(max_size=3)) + frames[which][until:]
    check_read_or_refused(frames)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_messages_with_frames_lost_doubled_or_swapped_are_read_or_refused(data: st.DataObject) -> None:
    pool = [frame for frames in real_frames() for frame in frames]
    check_read_or_refused(data.draw(st.lists(st.sampled_from(pool), max_size=4)))


def test_every_beginning_of_every_message_is_refused() -> None:
    for frames in real_frames():
        for size in range(len(frames[0])):
            for decode in (decode_client_message, decode_server_message):
                with pytest.raises(WireError):
                    decode([frames[0][:size], *frames[1:]])


def test_a_wire_error_is_no_refusal_of_a_request() -> None:
    assert not issubclass(WireError, InvalidRequestError), "else a fault of the engine would pass for the user's"


# -- the schema ------------------------------------------------------------------------------------------------------


class Colour(enum.IntEnum):
    RED = 0
    BLUE = 1


def struct(*fields: Any, name: str = "S", tag: int = 1) -> type:
    return msgspec.defstruct(name, fields, array_like=True, tag=tag)


@pytest.mark.parametrize(
    "changed",
    [
        [struct(("a", int), ("b", str))],
        [struct(("b", str, "x"), ("a", int, 0))],
        [struct(("a", int), ("c", str, "x"))],
        [struct(("a", float), ("b", str, "x"))],
        [struct(("a", int), ("b", str, "y"))],
        [struct(("a", int), ("b", str, "x"), ("c", int, 0))],
        [struct(("a", int))],
        [struct(("a", int), ("b", str, "x"), tag=2)],
        [struct(("a", int), ("b", str, "x"), name="T")],
        [struct(("a", int), ("b", str, "x")), Colour],
        [],
    ],
)
def test_the_schema_changes_whenever_a_struct_does(changed: list[type]) -> None:
    assert schema_of(changed) != schema_of([struct(("a", int), ("b", str, "x"))])


def test_the_schema_changes_with_the_members_of_an_enum() -> None:
    def colours(**members: int) -> str:
        members_of: Any = enum.IntEnum
        return schema_of([members_of("Colour", members)])

    assert len({colours(RED=0, BLUE=1), colours(RED=1, BLUE=0), colours(RED=0, BLUE=1, GREEN=2)}) == 3
    assert colours(RED=0, BLUE=1) == schema_of([Colour])


def test_the_schema_covers_every_type_that_a_message_can_hold() -> None:
    def types_in(kind: Any) -> set[type]:
        found: set[type] = {kind.cls} if hasattr(kind, "cls") else set()
        inner = [field.type for field in getattr(kind, "fields", ())]
        inner += [getattr(kind, name) for name in ("item_type", "key_type", "value_type") if hasattr(kind, name)]
        return found.union(*map(types_in, [*inner, *getattr(kind, "types", ())]))

    modules = (wire, messages, sampling)
    covered = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    reachable = types_in(msgspec.inspect.type_info(ClientMessage)) | types_in(msgspec.inspect.type_info(ServerMessage))
    assert {Welcome, FinishReason, EngineCoreOutput, SamplingParams} < reachable
    assert reachable <= covered
    assert schema_of(covered) == SCHEMA


# -- nothing is evaluated --------------------------------------------------------------------------------------------


def test_a_pickle_is_not_run() -> None:
    payload = pickle.dumps(Loaded())
    extension = msgspec.msgpack.Ext(1, payload)
    for frames in ([payload], [pack(4, 1, "x", [extension])], [pack(4, 1, "x", [payload])]):
        check_read_or_refused(frames)
    with pytest.raises(AssertionError, match="was unpickled"):
        pickle.loads(payload)


def test_nothing_in_the_kernel_or_in_a_transport_can_unpickle_or_evaluate() -> None:
    root = Path(enginecore.__file__).parents[2]
    sources = [*root.glob("framework/**/*.py"), *root.glob("plugins/transports/**/*.py")]
    assert len(sources) > 50
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text())):
            imported = [name.name for name in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                imported.append(node.module or "")
            called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            assert not {"pickle", "marshal", "shelve", "dill", "cloudpickle"} & set(imported), source
            assert called not in {"eval", "exec"}, source
