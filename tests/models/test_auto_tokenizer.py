"""The tokenizer `auto`: the same ids and texts as transformers' AutoTokenizer."""

import json
import subprocess
import sys
import threading

import pytest
from transformers import AutoTokenizer

import enginecore_models
from enginecore.errors import ModelError
from enginecore.plugin import TokenizerContext
from enginecore_models.tokenizer import load_tokenizer
from tests.models import tiny

TEXTS = [
    "",
    " ",
    "hello",
    " hello  world ",
    "Don't they'll I'm",
    "line\nbreaks\r\n\n\n\tand tabs  ",
    "12345 67.89 0x1F ½ ²",
    "  12 34",
    "naïve café ÅÄÖ ß ﬁ",
    "e\u0301 combining, \u200bzero width\u00a0and no-break",
    "世界、你好。日本語のテキスト 한국어",
    "mixed 世界 and English日本",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "שלום עולם مرحبا ไทย हिन्दी",
    "<s>special</s> <s> in text</s>",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
    "<|im_start|",
    "\ufffd \x00 \x7f \ufeff",
    "def f(x):\n    return x**2  # comment\n",
    "a" * 300,
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    return tiny.write_tokenizer(folder, tiny.byte_level_tokenizer(), chat_template=tiny.CHAT_TEMPLATE)


@pytest.fixture(
    scope="module", params=["byte_level", "byte_fallback", pytest.param("packaged", marks=pytest.mark.model)]
)
def pair(request, tmp_path_factory):
    """A tokenizer of ours and the same one of transformers."""
    if request.param == "packaged":
        file = request.getfixturevalue("packaged_gguf")
        return load_tokenizer("smollm2-135m"), AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    made = getattr(tiny, f"{request.param}_tokenizer")()
    folder = tiny.write_tokenizer(tmp_path_factory.mktemp(request.param), made, chat_template=tiny.CHAT_TEMPLATE)
    return load_tokenizer(str(folder)), AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("add_special_tokens", [True, False])
def test_ids_equal_those_of_transformers(pair, add_special_tokens):
    ours, theirs = pair
    for text in TEXTS:
        expected = theirs(text, add_special_tokens=add_special_tokens).input_ids
        assert ours.encode(text, add_special_tokens=add_special_tokens) == expected, text


@pytest.mark.parametrize("skip_special_tokens", [True, False])
def test_texts_equal_those_of_transformers(pair, skip_special_tokens):
    ours, theirs = pair
    for text in TEXTS:
        ids = theirs(text).input_ids
        expected = theirs.decode(ids, skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False)
        assert ours.decode(ids, skip_special_tokens=skip_special_tokens) == expected, text


def test_special_tokens_equal_those_of_transformers(pair):
    ours, theirs = pair
    assert ours.vocab_size == len(theirs)
    assert ours.eos_token_id == theirs.convert_tokens_to_ids("<|im_end|>" if ours.vocab_size == 49152 else "</s>")
    assert ours.special_token_ids == {token for token, added in theirs.added_tokens_decoder.items() if added.special}


@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_prompts_equal_those_of_transformers(pair, add_generation_prompt):
    ours, theirs = pair
    messages = [{"role": "system", "content": "Be <brief> & kind."}, {"role": "user", "content": "Hi 世界\n"}]
    for conversation in (messages, messages[1:]):
        expected = theirs.apply_chat_template(conversation, tokenize=False, add_generation_prompt=add_generation_prompt)
        assert ours.apply_chat_template(conversation, add_generation_prompt=add_generation_prompt) == expected


# -- where it is from --------------------------------------------------------------------------------


def make(model, tokenizer=None):
    (component,) = enginecore_models.enginecore_components()
    assert (component.kind, component.name) == ("tokenizer", "auto")
    return component.factory(component.settings(), TokenizerContext(model=model, tokenizer=tokenizer))


def test_the_tokenizer_setting_goes_before_the_model(folder, tmp_path):
    other = tiny.write_tokenizer(tmp_path / "other", tiny.byte_fallback_tokenizer())
    assert make(str(other)).vocab_size == 290
    assert make(str(other), str(folder)).vocab_size == 320


def test_a_tokenizer_json_alone_will_do(folder, tmp_path):
    (tmp_path / "words.json").write_bytes((folder / "tokenizer.json").read_bytes())
    tokenizer = load_tokenizer(str(tmp_path / "words.json"))
    assert tokenizer.encode("hello") == load_tokenizer(str(folder)).encode("hello")
    assert tokenizer.eos_token_id is None


def test_a_gguf_has_its_tokenizer_and_template(tiny_gguf, folder):
    tokenizer = load_tokenizer(str(tiny_gguf))
    assert tokenizer.encode("the quick 世界", add_special_tokens=False) == load_tokenizer(str(folder)).encode(
        "the quick 世界", add_special_tokens=False
    )
    assert tokenizer.eos_token_id == 1
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}]) == "<s>[user] x</s>\n[assistant] "


def test_a_folder_with_vocabulary_and_merges_only_is_converted(folder, tmp_path):
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "GPT2Tokenizer", "eos_token": "</s>", "bos_token": "<s>", "unk_token": "</s>"})
    )
    ours, theirs = load_tokenizer(str(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    assert ours.encode("the quick 世界</s>") == theirs("the quick 世界</s>").input_ids
    assert ours.eos_token_id == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["merges.txt", "tokenizer_config.json", "vocab.json"]


def test_a_folder_without_a_tokenizer_says_what_is_missing(tmp_path):
    with pytest.raises(ModelError, match=r"has no tokenizer\.json, and transformers finds no other tokenizer"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize("content", ["", "{", '{"model": {}}'])
def test_a_broken_tokenizer_json_is_named(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError, match=r"tokenizer\.json is not a tokenizer\.json that can be read"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize("content", ["{", "[]", '{"added_tokens_decoder": {"x": 1}}', '{"eos_token": {}}'])
def test_a_broken_tokenizer_config_is_named(tmp_path, content):
    tiny.write_tokenizer(tmp_path, tiny.byte_level_tokenizer())
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(ModelError, match=r"tokenizer_config\.json cannot be used"):
        load_tokenizer(str(tmp_path))


# -- special tokens ----------------------------------------------------------------------------------


def test_a_special_token_named_only_beside_the_tokenizer_is_added(tmp_path):
    config = {"pad_token": {"__type": "AddedToken", "content": "<pad>"}, "additional_special_tokens": ["<tool>"]}
    tiny.write_tokenizer(tmp_path, tiny.byte_level_tokenizer(), **config)
    ours, theirs = load_tokenizer(str(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    ids = ours.encode("hello<pad><tool>world")
    assert ids == theirs("hello<pad><tool>world").input_ids
    assert ours.vocab_size == len(theirs) == 322
    assert ours.special_token_ids == {0, 1, 320, 321}
    assert ours.decode(ids) == "helloworld"


def test_the_special_tokens_map_of_older_folders_is_read(tmp_path):
    tiny.write_tokenizer(tmp_path, tiny.byte_level_tokenizer())
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "</s>"}}))
    assert load_tokenizer(str(tmp_path)).eos_token_id == 1


def test_eos_may_be_named_by_the_model_only(tmp_path):
    tiny.write_tokenizer(tmp_path, tiny.byte_level_tokenizer(), eos_token=None)
    (tmp_path / "config.json").write_text('{"eos_token_id": 5}')
    assert load_tokenizer(str(tmp_path)).eos_token_id == 5
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 5]}')
    assert load_tokenizer(str(tmp_path)).eos_token_id == 1


def test_a_tokenizer_that_truncates_and_pads_is_made_not_to(tmp_path):
    backend = tiny.byte_level_tokenizer()
    backend.enable_truncation(4)
    backend.enable_padding(length=50)
    tiny.write_tokenizer(tmp_path, backend)
    assert len(load_tokenizer(str(tmp_path)).encode("z" * 20)) == 21


# -- threads and processes ---------------------------------------------------------------------------


def test_threads_may_share_it(folder):
    tokenizer = load_tokenizer(str(folder))
    expected = [tokenizer.encode(text) for text in TEXTS]
    wrong = []

    def work():
        for _ in range(20):
            if [tokenizer.encode(text) for text in TEXTS] != expected:
                wrong.append(threading.get_ident())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_forking_after_use_is_silent_and_safe(folder):
    code = (
        "import os, sys\n"
        "from enginecore_models.tokenizer import load_tokenizer\n"
        "tokenizer = load_tokenizer(sys.argv[1])\n"
        "before = tokenizer.encode('the quick fox'), tokenizer.decode([40, 41])\n"
        "child = os.fork()\n"
        "after = tokenizer.encode('the quick fox'), tokenizer.decode([40, 41])\n"
        "assert before == after\n"
        "if child == 0: os._exit(0)\n"
        "sys.exit(os.waitpid(child, 0)[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_warm_start_imports_nothing_heavy(tiny_gguf, tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINECORE_CACHE", str(tmp_path / "cache"))
    code = (
        "import sys\n"
        "from enginecore_models.source import find_model\n"
        "from enginecore_models.tokenizer import load_tokenizer\n"
        "load_tokenizer(sys.argv[1]); find_model(sys.argv[1])\n"
        "print(sorted({'torch', 'transformers', 'gguf', 'huggingface_hub'} & sys.modules.keys()))\n"
    )
    outputs = [
        subprocess.run([sys.executable, "-c", code, str(tiny_gguf)], capture_output=True, text=True, timeout=120)
        for _ in range(2)
    ]
    assert [done.stderr for done in outputs] == ["", ""]
    assert "'transformers'" in outputs[0].stdout  # the copy was made
    assert outputs[1].stdout == "[]\n"


def test_the_plugin_itself_is_light():
    code = (
        "import sys, enginecore_models; print(sorted({'torch', 'tokenizers', 'jinja2', 'numpy'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout == "[]\n"
