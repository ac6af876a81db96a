"""An AsyncLLM on a scripted engine core, and what its tests share."""

from collections.abc import Sized
from typing import Any

from enginecore import AsyncLLM, SamplingParams
from enginecore.frontend.outputs import RequestOutputKind
from tests.frontend.byte_tokenizer import ByteTokenizer
from tests.frontend.scripted_async_client import ScriptedAsyncClient
from tests.frontend.scripted_client import make_info


class Client(ScriptedAsyncClient):
    """Every request is answered with `text`."""

    due: Any
    text = "".join(chr(ord("a") + n % 26) for n in range(10_000))


def answer(request):
    return list(Client.text[: request.params.max_tokens].encode())


def make(**info):
    client = Client(answer, info=make_info(**info))
    return AsyncLLM.from_client(client, ByteTokenizer), client


async def read(llm: Any, prompt: Any = "Hi", request_id: Any = None, *, output_kind=RequestOutputKind.DELTA, **params):
    """All outputs of one request."""
    stream = llm.generate(prompt, SamplingParams(**params), request_id, output_kind=output_kind)
    return [output async for output in stream]


def pieces(outputs):
    return [output.outputs[0].text for output in outputs]


def kept(llm):
    """How much is left in all maps and lists of the front end."""
    owners = [llm, *(value for value in vars(llm).values() if type(value).__module__.startswith("enginecore.frontend"))]
    sizes = {
        f"{type(owner).__name__}.{name}": len(value)
        for owner in owners
        for name, value in vars(owner).items()
        if isinstance(value, Sized)
    }
    assert len(sizes) >= 4, sizes
    return sum(sizes.values())
