"""`enginecore generate` and `enginecore chat`, on the oracle with a tokenizer of 257 tokens: no model is needed."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from enginecore.cli import main

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
)


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """A settings file for an engine that starts in no time."""
    folder = tmp_path_factory.mktemp("tokenizer")
    vocabulary = {character: n for n, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    file = folder / "settings.json"
    oracle = {"vocab_size": 256, "eos_token_ids": [], "max_model_len": 256}
    file.write_text(json.dumps({"tokenizer": str(folder), "executor": {"use": "oracle", "oracle": oracle}}))
    return ["--config", str(file)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def file_of(content):
    """Standard input as Python opens it where the locale is UTF-8."""
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8")


@pytest.fixture
def run(options, capsys, monkeypatch):
    """Runs a command; returns exit code, stdout and stderr. Without `stdin`, standard input is closed."""

    def run(*arguments, stdin=None, terminal=False):
        if isinstance(stdin, str):
            stdin = Terminal(stdin) if terminal else io.StringIO(stdin)
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(SystemExit) as exit:
            main([*arguments, *options])
        captured = capsys.readouterr()
        return exit.value.code or 0, captured.out, captured.err

    return run


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_one_prompt_prints_its_text_and_a_summary_beside_it(run):
    code, out, err = run("generate", "Hello", "--max-tokens", "8")
    assert code == 0
    _, written, _ = run("generate", "Hello", "--max-tokens", "8", "--json")
    assert out == json.loads(written)["text"] + "\n"
    assert "8 tokens in" in err
    assert "TTFT" in err
    for component in ("scheduler fcfs", "kv_cache_manager paged", "executor oracle", "transport inproc"):
        assert component in err


def test_json_is_one_object_per_prompt_and_nothing_else(run):
    code, out, err = run("generate", "one", "three", "--max-tokens", "5", "--json")
    results = json_lines(out)
    assert (code, err) == (0, "")
    assert sorted((result["index"], result["prompt"]) for result in results) == [(0, "one"), (1, "three")]
    for result in results:
        assert len(result["token_ids"]) == result["num_output_tokens"] == 5
        assert result["num_prompt_tokens"] == len(result["prompt"])
        assert (result["finish_reason"], result["stop_reason"], result["error"]) == ("length", None, None)
        assert 0 <= result["ttft"] <= result["e2e_latency"]


def test_several_prompts_are_printed_with_their_numbers(run):
    code, out, err = run("generate", "one", "three", "--max-tokens", "5")
    assert code == 0
    assert "[0] one\n" in out
    assert "[1] three\n" in out
    assert "2 completions, 10 tokens in" in err
    assert "median TTFT" in err


def test_prompts_come_from_a_file_or_from_standard_input(run, tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("first\n\nsecond\n")
    for source, stdin in [(str(file), None), ("-", "first\n\nsecond\n")]:
        code, out, _ = run("generate", "zeroth", "--prompts-file", source, "--json", stdin=stdin)
        prompts = {result["index"]: result["prompt"] for result in json_lines(out)}
        assert (code, prompts) == (0, {0: "zeroth", 1: "first", 2: "second"})


def test_sampling_options_reach_the_request(run):
    _, out, _ = run("generate", "Hello", "--max-tokens", "30", "--json")
    text = json.loads(out)["text"]
    stop = text[4:6]
    _, out, _ = run("generate", "Hello", "--max-tokens", "30", "--stop", stop, "--stop", "never there", "--json")
    result = json.loads(out)
    assert (result["text"], result["finish_reason"], result["stop_reason"]) == (
        text[: text.index(stop)],
        "stop",
        stop,
    )


def test_settings_come_from_the_command_line(run):
    code, _, err = run("generate", "Hello", "--set", "max_model_len=4")
    assert (code, err) == (
        1,
        "error: prompt 0 of 1: the prompt has 5 tokens and may have 3 "
        "(max_model_len is 4 and one output token must fit beside it)\n",
    )


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--top-p", "3"], 1, "error: top_p must be a number in (0, 1], got 3.0\n"),
        (["--set", "max_num_sequences=3"], 2, "max_num_sequences"),
        (["--set", "scheduler.use=fcsf"], 2, "fcfs"),
        (["--prompts-file", "/nowhere"], 2, "/nowhere"),
    ],
)
def test_mistakes_are_said_in_words_on_stderr(run, arguments, code, says):
    got, out, err = run("generate", "Hello", *arguments)
    assert (got, out) == (code, "")
    assert says in err
    assert "Traceback" not in err


def test_no_prompt_is_a_mistake(run):
    code, out, err = run("generate")
    assert (code, out) == (2, "")
    assert "--prompts-file" in err


@pytest.mark.parametrize("arguments", [["caf\udce9"], ["Hello", "--stop", "caf\udce9"]])
def test_arguments_that_cannot_be_decoded_are_refused(run, arguments):
    code, out, err = run("generate", *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("error: prompt 0 of 1: ")
    assert err.endswith("stands for a byte that could not be decoded\n")


def test_prompts_that_cannot_be_decoded_are_refused_with_their_number(run, tmp_path):
    code, out, err = run("generate", "--prompts-file", "-", stdin=file_of(b"Hello\ncaf\xe9\n"))
    assert (code, out) == (1, "")
    assert err.startswith("error: prompt 1 of 2: the prompt must be text that UTF-8 can hold: '\\udce9' at index 3 ")
    (tmp_path / "prompts.txt").write_bytes(b"Hello\ncaf\xe9\n")
    code, out, err = run("generate", "--prompts-file", str(tmp_path / "prompts.txt"))
    assert (code, out) == (2, "")
    assert "'utf-8' codec can't decode byte" in err


@pytest.mark.parametrize("command", [["chat"], ["generate", "--prompts-file", "-"]])
def test_a_closed_standard_input_is_said(run, command):
    code, out, err = run(*command)
    assert (code, out) == (1, "")
    assert err == "error: standard input is closed: open a terminal, a pipe or a file as standard input\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("command", [["generate", "Hello"], ["generate", "a", "b", "--json"], ["config"], ["plugins"]])
def test_output_that_cannot_be_written_is_said_once(options, command):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "enginecore.cli", *command, *options],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "error: [Errno 28] No space left on device\n")


def test_a_request_that_fails_is_said_and_fails_the_command(run):
    arguments = ["--set", "num_kv_blocks=17", "--set", "block_size=16", "--set", "executor.oracle.verify=false"]
    fault = '[{"kind": "error", "request_id": "llm-0-0-0"}]'
    code, out, err = run("generate", "one", "two", "--json", "--set", f"executor.oracle.faults={fault}", *arguments)
    results = {result["index"]: result for result in json_lines(out)}
    assert code == 1
    assert results[0]["finish_reason"] == "error"
    assert results[1]["finish_reason"] == "length"
    assert err == f"error: prompt 0: {results[0]['error']}\n"


# -- chat ------------------------------------------------------------------------------------------------------------


def test_chat_answers_each_line_of_a_pipe_with_the_conversation_so_far(run):
    code, out, err = run("chat", "--max-tokens", "4", "--json", "--system", "S", stdin="Hi\n\nMore\n/exit\nnever\n")
    first, second = json_lines(out)
    assert (code, err) == (0, "")
    assert (first["index"], first["prompt"], first["num_prompt_tokens"]) == (0, "Hi", len("s:S;u:Hi;a:"))
    answer = len(first["text"].encode())
    assert (second["index"], second["prompt"]) == (1, "More")
    assert second["num_prompt_tokens"] == len("s:S;u:Hi;a:") + answer + len(";u:More;a:")


def test_reset_forgets_all_but_the_system_message(run):
    _, out, _ = run("chat", "--temperature", "0", "--json", "--system", "S", stdin="Hi\n/reset\nHi\n")
    first, second = json_lines(out)
    assert first["token_ids"] == second["token_ids"]
    assert second["num_prompt_tokens"] == first["num_prompt_tokens"]


def test_chat_from_a_pipe_prints_answers_only(run):
    code, out, err = run("chat", "--max-tokens", "4", "--temperature", "0", stdin="Hi\n")
    _, written, _ = run("chat", "--max-tokens", "4", "--temperature", "0", "--json", stdin="Hi\n")
    assert (code, out, err) == (0, json.loads(written)["text"] + "\n", "")


def test_chat_from_a_pipe_fails_where_a_conversation_gets_too_long(run):
    code, out, err = run("chat", "--max-tokens", "4", "--json", stdin="Hi\n" + "x" * 300 + "\nHi\n")
    assert code == 1
    assert len(json_lines(out)) == 1
    assert "max_model_len is 256" in err


def test_chat_from_a_pipe_ends_at_a_line_that_cannot_be_decoded(run):
    code, out, err = run("chat", "--max-tokens", "4", "--json", stdin=file_of(b"Hi\ncaf\xe9\nHi\n"))
    assert code == 1
    assert len(json_lines(out)) == 1
    assert err.startswith("error: what 'user' says must be text that UTF-8 can hold: '\\udce9' at index 3 ")


def test_chat_at_a_terminal_goes_on_after_a_mistake(run):
    lines = ["Hi", "x" * 300, "/reset", "Hi", ""]
    code, out, err = run("chat", "--max-tokens", "4", stdin="\n".join(lines), terminal=True)
    assert code == 0
    assert "you> " in out
    assert out.count("4 tokens in") == 2
    assert "prompt tokens cached" in out
    assert "max_model_len is 256" in err
    assert "/reset starts again" in err
