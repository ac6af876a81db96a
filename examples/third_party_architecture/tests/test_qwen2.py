"""The tokens of transformers' own implementation, on a tiny random model."""

import json

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from enginecore import LLM, SamplingParams
from enginecore.errors import ModelError

PROMPTS = [[5, 9, 17, 3], list(range(3, 40))]
COUNT = 8


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=211,
        hidden_size=48,
        intermediate_size=88,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=160,
        initializer_range=0.4,
        eos_token_id=2,
        tie_word_embeddings=True,
    )
    made = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.uniform_(0.5, 1.5)
    return made


@pytest.fixture
def folder(model, tmp_path):
    model.save_pretrained(tmp_path)
    return tmp_path


def expected(model, prompt):
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(COUNT):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


def start(folder, **settings):
    return LLM(model=str(folder), dtype="float32", num_kv_blocks=40, **settings)


EXECUTORS = {
    "single": {"use": "single", "single": {"num_threads": 1}},
    "two ranks": {"use": "multiproc", "multiproc": {"tensor_parallel_size": 2, "num_threads": 1}},
}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_tokens_are_those_of_transformers(model, folder, executor):
    params = SamplingParams(temperature=0, max_tokens=COUNT, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    with start(folder, executor=EXECUTORS[executor]) as llm:
        outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [list(output.outputs[0].token_ids) for output in outputs] == [expected(model, prompt) for prompt in PROMPTS]


def test_a_model_with_sliding_windows_is_refused(folder):
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "use_sliding_window": True}))
    with pytest.raises(ModelError, match="use_sliding_window"):
        start(folder)
