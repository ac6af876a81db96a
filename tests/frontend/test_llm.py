import io
import signal

import pytest

from enginecore import LLM, SamplingParams
from enginecore.errors import ConfigurationError, EngineCoreError, EngineDeadError, InvalidRequestError
from enginecore.interfaces import Transport
from enginecore.plugin import Component
from tests.frontend.byte_tokenizer import ByteTokenizer
from tests.frontend.scripted_client import ScriptedClient

GREETING = [{"role": "user", "content": "Hi"}]


class ScriptedTransport(Transport):
    """Connects to a client that exists already."""

    def __init__(self, client):
        self.client = client

    def connect(self):
        return self.client


def make(script=lambda request: request.prompt_token_ids, **options):
    """An LLM whose model repeats its prompt, and its engine core."""
    client = ScriptedClient(script, **options)
    transport = Component(
        kind="transport",
        name="scripted",
        factory=lambda settings, context: ScriptedTransport(client),
        capabilities=frozenset({"sync"}),
    )
    tokenizer = Component(kind="tokenizer", name="bytes", factory=lambda settings, context: ByteTokenizer())
    llm = LLM(
        components=[transport, tokenizer],
        transport={"use": "scripted"},
        tokenization={"use": "bytes"},
    )
    return llm, client


class Terminal(io.StringIO):
    def isatty(self):
        return True


def texts(outputs):
    return [output.outputs[0].text for output in outputs]


def test_many_prompts_come_back_in_their_order():
    llm, client = make()
    outputs = llm.generate(["four", "a", "two"], SamplingParams(max_tokens=9))
    assert texts(outputs) == ["four", "a", "two"]
    assert [output.prompt for output in outputs] == ["four", "a", "two"]
    assert all(output.finished and output.outputs[0].finish_reason == "stop" for output in outputs)
    assert outputs[0].num_cached_tokens == 3
    assert client.num_steps == 5


@pytest.mark.parametrize("prompt", ["Hi", [72, 105], {"prompt": "Hi"}, {"prompt_token_ids": [72, 105]}])
def test_one_prompt_in_any_form_gives_one_output(prompt):
    llm, _ = make()
    assert texts(llm.generate(prompt)) == ["Hi"]


def test_prompts_of_all_forms_may_be_mixed():
    llm, _ = make()
    prompts = ["a", [98], {"prompt": "c"}, {"prompt": "shown", "prompt_token_ids": [100]}]
    outputs = llm.generate(prompts)
    assert texts(outputs) == ["a", "b", "c", "d"]
    assert outputs[3].prompt == "shown"


def test_no_prompts_give_no_outputs():
    llm, client = make()
    assert llm.generate([]) == []
    assert client.num_steps == 0


@pytest.mark.parametrize(
    "prompts",
    [(text for text in ("a", "b")), {"a": 1, "b": 2}.keys(), ("a", "b"), [{"prompt": "a"}, [98]]],
    ids=["generator", "keys", "tuple", "mixed list"],
)
def test_any_iterable_of_prompts_will_do(prompts):
    llm, _ = make()
    assert texts(llm.generate(prompts)) == ["a", "b"]


@pytest.mark.parametrize("ids", [(i for i in (72, 105)), range(72, 74)], ids=["generator", "range"])
def test_an_iterable_of_numbers_is_one_prompt(ids):
    llm, _ = make()
    assert [len(output.prompt_token_ids) for output in llm.generate(ids)] == [2]


@pytest.mark.parametrize(
    ("prompts", "says"),
    [
        (None, "prompts must be a prompt or a list of prompts, got None"),
        (5, "prompts must be a prompt or a list of prompts, got 5"),
        ([None], "prompt 0 of 1: a prompt must be a string, .* got NoneType"),
        (b"", "prompt 0 of 1: a prompt must be a string, .* got bytes"),
        ({}, "prompt 0 of 1: a prompt dict must hold"),
        (["a", "\ud800"], "prompt 1 of 2: the prompt must be text"),
    ],
)
def test_what_gives_no_prompts_is_refused(prompts, says):
    llm, client = make()
    with pytest.raises(InvalidRequestError, match=says):
        llm.generate(prompts)
    with pytest.raises(InvalidRequestError, match=says):
        llm.stream(prompts)
    assert client.requests == []


def test_parameters_are_sixteen_tokens_by_default():
    llm, _ = make(lambda request: [97] * 50)
    assert len(llm.generate("Hi")[0].outputs[0].token_ids) == 16


def test_parameters_and_priorities_may_be_given_per_prompt():
    llm, client = make()
    params = [SamplingParams(max_tokens=1), SamplingParams(max_tokens=2)]
    assert texts(llm.generate(["abc", "abc"], params, priority=[2, 1], tenant="t")) == ["a", "ab"]
    assert [(request.priority, request.tenant) for request in client.requests] == [(2, "t"), (1, "t")]


@pytest.mark.parametrize("wrong", [{"sampling_params": [SamplingParams()]}, {"priority": [1, 2, 3]}])
def test_one_value_per_prompt_must_be_one_per_prompt(wrong):
    llm, client = make()
    with pytest.raises(InvalidRequestError, match=r"one per prompt: got \d for 2 prompts"):
        llm.generate(["a", "b"], **wrong)
    assert client.requests == []


@pytest.mark.parametrize(
    ("prompts", "says"),
    [
        (["good", ""], "prompt 1 of 2: the prompt is empty"),
        ([[1], [1, 999]], "prompt 1 of 2: prompt_token_ids must be in"),
        (["x" * 200, "good"], "prompt 0 of 2: the prompt has 200 tokens and may have 127"),
    ],
)
def test_a_prompt_that_is_refused_is_named_before_anything_is_queued(prompts, says):
    """Field case 29, among others."""
    llm, client = make()
    with pytest.raises(InvalidRequestError, match=says):
        llm.generate(prompts)
    assert client.requests == []
    assert texts(llm.generate("still here")) == ["still here"]


def test_what_the_engine_core_refuses_later_leaves_nothing_of_the_batch():
    llm, client = make()
    with pytest.raises(InvalidRequestError, match="adapters"):
        llm.generate(["a", "b"], adapter="x")
    assert client.live == {}
    assert texts(llm.generate("still here")) == ["still here"]


def test_a_request_that_fails_on_its_way_does_not_cost_the_others_anything():
    llm, client = make()
    failing = client.add_request

    def add(request):
        failing(request)
        if len(client.requests) == 2:
            client.errors[request.request_id] = "too large for the KV cache"

    client.add_request = add
    outputs = llm.generate(["a", "b", "c"])
    assert texts(outputs) == ["a", "", "c"]
    assert [output.error for output in outputs] == [None, "too large for the KV cache", None]
    assert outputs[1].outputs[0].finish_reason == "error"


def test_ctrl_c_strikes_between_steps_and_leaves_the_llm_usable():
    llm, client = make(lambda request: [97] * 100)
    finished_steps = []

    def interrupt():
        if client.num_steps == 2:
            signal.raise_signal(signal.SIGINT)
        finished_steps.append(client.num_steps)

    client.on_output = interrupt
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["a", "b"], SamplingParams(max_tokens=50))
    assert finished_steps == [0, 1, 2]
    assert client.live == {}
    assert len(client.aborted) == 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    client.on_output = lambda: None
    assert texts(llm.generate(["a"], SamplingParams(max_tokens=3))) == ["aaa"]


def test_a_second_ctrl_c_does_not_wait_for_the_step():
    llm, client = make(lambda request: [97] * 100)
    reached = []

    def interrupt():
        signal.raise_signal(signal.SIGINT)
        reached.append("one")
        signal.raise_signal(signal.SIGINT)
        reached.append("two")

    client.on_output = interrupt
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["a"])
    assert reached == ["one"]
    assert client.live == {}


def test_a_dead_engine_core_is_raised_with_its_cause_every_time():
    llm, client = make()

    def die():
        raise EngineDeadError("the executor has failed") from RuntimeError("out of memory")

    client.on_output = die
    for _ in range(2):
        with pytest.raises(EngineDeadError, match="the executor has failed") as caught:
            llm.generate(["a", "b"])
        assert isinstance(caught.value.__cause__, RuntimeError)
    assert not llm.llm_engine.has_unfinished_requests()


def test_generate_does_not_swallow_the_outputs_of_requests_added_by_hand():
    llm, _ = make()
    llm.llm_engine.add_request("mine", "ab", SamplingParams(max_tokens=1))
    with pytest.raises(EngineCoreError, match="step it first"):
        llm.generate("cd")
    assert texts(llm.llm_engine.step()) == ["a"]
    assert texts(llm.generate("cd")) == ["cd"]


def test_chat_renders_one_conversation_or_many():
    llm, _ = make()
    (output,) = llm.chat(GREETING, SamplingParams(max_tokens=None))
    assert output.prompt == output.outputs[0].text == "<user>Hi\n<assistant>"
    outputs = llm.chat([GREETING, GREETING], add_generation_prompt=False, chat_template_kwargs={"mood": "good"})
    assert [output.prompt for output in outputs] == ["<user>Hi\nmood=good"] * 2


def test_any_iterable_of_messages_or_conversations_will_do():
    llm, _ = make()
    assert len(llm.chat(message for message in GREETING)) == 1
    assert len(llm.chat([*GREETING] for _ in range(2))) == 2
    assert llm.chat([]) == []


@pytest.mark.parametrize("messages", [None, {}, GREETING[0], "Hi", 5])
def test_what_gives_no_messages_is_refused(messages):
    llm, client = make()
    with pytest.raises(InvalidRequestError, match="messages must be a list of messages, or a list of such lists, got"):
        llm.chat(messages)
    assert client.requests == []


@pytest.mark.parametrize("variables", [{"messages": []}, {"add_generation_prompt": False}, {3: 4}, []])
def test_variables_that_a_chat_template_cannot_take_are_refused(variables):
    llm, client = make()
    with pytest.raises(InvalidRequestError, match="conversation 0 of 1: chat_template_kwargs must"):
        llm.chat(GREETING, chat_template_kwargs=variables)
    assert client.requests == []


def test_a_conversation_that_is_refused_is_named():
    llm, client = make()
    with pytest.raises(InvalidRequestError, match='conversation 1 of 2: a message must be a dict with a "role"'):
        llm.chat([GREETING, [{"content": "Hi"}]])
    assert client.requests == []


def test_the_llm_is_a_context_and_shutdown_may_be_repeated():
    llm, client = make()
    with llm as same:
        assert same is llm
        assert llm.info.model == "scripted"
        assert llm.get_tokenizer().decode([72]) == "H"
        assert llm.reset_prefix_cache() is True
    assert client.num_shutdowns == 1
    llm.shutdown()


def test_a_misspelt_setting_is_an_error_that_names_it():
    with pytest.raises(ConfigurationError, match="max_num_sequences"):
        LLM(max_num_sequences=3)


def test_a_stream_gives_what_is_new_of_each_prompt():
    llm, _ = make()
    seen = [(index, output.outputs[0].text) for index, output in llm.stream(["ab", "x"], SamplingParams(max_tokens=2))]
    assert seen == [(0, "a"), (1, "x"), (0, "b"), (1, "")]


def test_a_stream_checks_its_prompts_at_once_and_runs_when_it_is_read():
    llm, client = make()
    with pytest.raises(InvalidRequestError, match="prompt 1 of 2"):
        llm.stream(["a", ""])
    llm.stream(["a"])
    assert client.requests == []


def test_a_stream_that_is_left_early_ends_what_still_runs():
    llm, client = make(lambda request: [97] * 100)
    stream = llm.stream(["a", "b"])
    next(stream)
    with pytest.raises(EngineCoreError, match="step it first"):
        llm.generate("c")
    stream.close()
    assert client.live == {}
    assert texts(llm.generate(["c"], SamplingParams(max_tokens=2))) == ["aa"]


def test_progress_is_shown_on_a_terminal_only(monkeypatch):
    llm, _ = make()
    for terminal, asked, shown in [(True, True, True), (False, True, False), (True, False, False)]:
        stderr = Terminal() if terminal else io.StringIO()
        monkeypatch.setattr("sys.stderr", stderr)
        assert texts(llm.generate(["ab", "cd"], use_tqdm=asked)) == ["ab", "cd"]
        assert ("2/2" in stderr.getvalue() and "tok/s" in stderr.getvalue()) is shown
