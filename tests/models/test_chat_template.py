"""Chat templates: as transformers renders them, in a sandbox, with errors for whoever sent the messages."""

from typing import Any

import pytest
from transformers import AutoTokenizer

from enginecore.errors import InvalidRequestError, ModelError
from enginecore_models.tokenizer import load_tokenizer
from tests.models import tiny

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": 'say "hi" & <go>'},
    {"role": "assistant", "content": "hi", "calls": [{"a": 1}]},
]


def with_template(folder, template):
    return tiny.write_tokenizer(folder, tiny.byte_level_tokenizer(), chat_template=template)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages | tojson }}",
        "{{ messages | tojson(indent=2) }}",
        "{{ bos_token }}{{ eos_token }}{{ pad_token }}",
        "{% for m in messages %}\n    {% if loop.first %}\n first \n    {% endif %}\n{{ m.role }}\n{% endfor %}",
        "{% for m in messages %}{% if m.role == 'assistant' %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}!{% endfor %}",
        "{% if tools is none %}no tools{% endif %}{% if documents %}documents{% endif %}",
        "{{ strftime_now('%Y') }}",
        "{{ messages[0].content.split('hi')[0].strip() }}{{ add_generation_prompt }}",
    ],
)
def test_what_templates_use_is_there(tmp_path, template):
    folder = with_template(tmp_path, template)
    expected = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        MESSAGES, tokenize=False, add_generation_prompt=True
    )
    assert load_tokenizer(str(folder)).apply_chat_template(MESSAGES) == expected


def test_variables_reach_the_template(tmp_path):
    tokenizer = load_tokenizer(str(with_template(tmp_path, "{{ thinking }} {{ bos_token }}")))
    assert tokenizer.apply_chat_template(MESSAGES, thinking="on", bos_token="other") == "on other"


def test_a_template_file_goes_before_the_config(tmp_path):
    folder = with_template(tmp_path, "from the config")
    (folder / "chat_template.jinja").write_text("from the file ü", encoding="utf-8")
    assert load_tokenizer(str(folder)).apply_chat_template(MESSAGES) == "from the file ü"


def test_named_templates_are_chosen_by_whether_there_are_tools(tmp_path):
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools[0].name }}"}]
    tokenizer = load_tokenizer(str(with_template(tmp_path, named)))
    assert tokenizer.apply_chat_template(MESSAGES) == "plain"
    assert tokenizer.apply_chat_template(MESSAGES, tools=[{"name": "search"}]) == "search"


def test_a_model_without_a_template_says_so(tmp_path):
    tokenizer = load_tokenizer(str(tiny.write_tokenizer(tmp_path, tiny.byte_level_tokenizer())))
    with pytest.raises(InvalidRequestError, match="has no chat template: render the conversation"):
        tokenizer.apply_chat_template(MESSAGES)


def test_a_model_with_other_templates_names_them(tmp_path):
    tokenizer = load_tokenizer(str(with_template(tmp_path, [{"name": "rag", "template": "x"}])))
    with pytest.raises(InvalidRequestError, match="has no chat template, only for rag"):
        tokenizer.apply_chat_template(MESSAGES)


def test_messages_that_a_template_refuses_are_the_senders_fault(tmp_path):
    template = "{{ raise_exception('roles must alternate') if messages | length > 1 }}"
    tokenizer = load_tokenizer(str(with_template(tmp_path, template)))
    with pytest.raises(InvalidRequestError, match="refuses these messages: roles must alternate"):
        tokenizer.apply_chat_template(MESSAGES)


@pytest.mark.parametrize(
    "message", [{"role": "user"}, {"role": "user", "content": None}, {"role": "user", "content": 3}]
)
def test_messages_of_the_wrong_shape_are_refused(tmp_path, message):
    tokenizer = load_tokenizer(str(with_template(tmp_path, "{{ 'user: ' + messages[0]['content'] }}")))
    with pytest.raises(InvalidRequestError, match="refuses these messages"):
        tokenizer.apply_chat_template([message])


@pytest.mark.parametrize(
    "template", ["{{ ''.__class__.__mro__ }}{{ x.y }}", "{{ messages.append(1) }}", "{{ cycler.__init__.__globals__ }}"]
)
def test_templates_run_in_a_sandbox(tmp_path, template):
    tokenizer = load_tokenizer(str(with_template(tmp_path, template)))
    with pytest.raises(InvalidRequestError):
        tokenizer.apply_chat_template(MESSAGES)


def test_a_broken_template_is_the_models_fault(tmp_path):
    tokenizer = load_tokenizer(str(with_template(tmp_path, "ok\n{% if %}")))
    with pytest.raises(ModelError, match=r"line 2 of the chat template of .* is broken"):
        tokenizer.apply_chat_template(MESSAGES)
