"""Tiny random Llama models, an executor around them, and hand-made plans: what the tests here share."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from enginecore.catalog import LoadedCatalog
from enginecore.clock import VirtualClock
from enginecore.interfaces import KVCacheConfig
from enginecore.messages import NewRequestData, RequestDelta, SchedulerOutput
from enginecore.plugin import ExecutorContext
from enginecore.sampling import SamplingParams
from enginecore.settings import load_settings
from enginecore_models.checkpoint import everything
from enginecore_models.config import ModelConfig
from enginecore_torch.executor import SingleExecutor
from enginecore_torch.settings import SingleExecutorSettings

VOCAB = 211
GREEDY = SamplingParams(temperature=0, seed=0, max_tokens=100)


def make_hf_model(seed=0, **fields):
    """A random transformers model in float32, with weights large enough that its tokens vary."""
    torch.manual_seed(seed)
    base = {
        "vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 88, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 160,
        "initializer_range": 0.4, "tie_word_embeddings": False, "eos_token_id": 2, "attn_implementation": "eager",
    }  # fmt: skip
    model = LlamaForCausalLM(LlamaConfig(**(base | fields))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.uniform_(0.5, 1.5)
    return model


@dataclass
class TinySource:
    """A ModelSource over tensors in memory."""

    config: ModelConfig
    tensors: dict[str, torch.Tensor]
    name: str = "tiny"
    path: Path = Path("/nowhere/tiny")

    def prepare(self, dtype):
        pass

    def weights(self, dtype, part_of=everything):
        for name, tensor in self.tensors.items():
            if (part := part_of(name, tuple(tensor.shape))) is not None:
                yield name, tensor[part].to(dtype)


def make_source(model, **changes):
    hf = model.config
    rope = dict(hf.rope_parameters)
    theta = rope.pop("rope_theta")
    config = ModelConfig(
        **({
            "architecture": "LlamaForCausalLM", "hidden_size": hf.hidden_size,
            "intermediate_size": hf.intermediate_size, "num_hidden_layers": hf.num_hidden_layers,
            "num_attention_heads": hf.num_attention_heads, "num_key_value_heads": hf.num_key_value_heads,
            "head_dim": hf.head_dim, "vocab_size": hf.vocab_size,
            "max_position_embeddings": hf.max_position_embeddings, "rms_norm_eps": hf.rms_norm_eps,
            "rope_theta": theta, "rope_scaling": None if rope["rope_type"] == "default" else rope,
            "tie_word_embeddings": hf.tie_word_embeddings, "attention_bias": hf.attention_bias,
            "mlp_bias": hf.mlp_bias, "hidden_act": hf.hidden_act, "dtype": "float32", "eos_token_ids": (2,),
            "bos_token_id": 1,
        } | changes)
    )  # fmt: skip
    tensors = {name: tensor.detach() for name, tensor in model.named_parameters()}
    return TinySource(config, tensors)


@cache
def make_catalog(attention="auto"):
    """The components of the installed plugins, with this attention backend chosen."""
    return LoadedCatalog(load_settings({"attention.use": attention}, environ={}))


def make_context(attention="auto", **changes):
    fields = {
        "model": "tiny", "dtype": "float32", "device": "cpu", "max_model_len": None, "block_size": 8,
        "max_num_seqs": 8, "max_num_batched_tokens": 256, "seed": 0, "clock": VirtualClock(),
        "catalog": make_catalog(attention),
    }  # fmt: skip
    return ExecutorContext(**(fields | changes))


def make_executor(source, *, num_blocks=64, settings=None, **context):
    made = make_context(**context)
    # one thread: what is tested does not depend on it, and other processes may share the machine
    executor = SingleExecutor(SingleExecutorSettings(**{"num_threads": 1, **(settings or {})}), made, source)
    config = KVCacheConfig(num_blocks, made.block_size, (tuple(executor.get_kv_cache_specs()),))
    executor.initialize_from_config(config)
    return executor


def hf_greedy(model, prompt, count):
    """Greedy tokens by recomputing everything with transformers."""
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


class Driver:
    """Plans steps by hand and keeps the books of blocks and tokens."""

    def __init__(self, executor, block_ids, block_size, *, defer=False):
        self.executor, self.block_size, self.defer = executor, block_size, defer
        self.free = list(block_ids)
        self.tokens, self.blocks, self.computed, self.known = {}, {}, {}, {}
        self.prompts, self.finished, self.preempted, self.step_number = {}, [], [], 0
        self.params = {}

    def add(self, request_id, prompt, params=GREEDY):
        """Make a request known to the driver; the worker hears of it when it is first scheduled."""
        self.prompts[request_id] = len(prompt)
        self.tokens[request_id], self.params[request_id] = list(prompt), params
        self.computed[request_id] = 0

    def share(self, request_id, other, num_tokens):
        """Let it start with the blocks of another request's first `num_tokens` tokens."""
        self.blocks[request_id] = self.blocks[other][: num_tokens // self.block_size]
        self.computed[request_id] = num_tokens

    def finish(self, request_id, *, preempted=False):
        (self.preempted if preempted else self.finished).append(request_id)
        self.free.extend(self.blocks.pop(request_id))
        self.known.pop(request_id)
        self.computed[request_id] = 0

    def step(self, counts):
        """One step; returns the runner's output."""
        answer = self.submit(counts).result(timeout=0)
        return self.settle(self.step_number - 1 if answer is None else answer)

    def submit(self, counts):
        """Submit one step; the future of its answer, which is None where its sampling is deferred."""
        new, deltas = [], []
        for request_id, count in counts.items():
            held = self.blocks.setdefault(request_id, [])
            added = [
                self.free.pop(0) for _ in range(-(-(self.computed[request_id] + count) // self.block_size) - len(held))
            ]
            held += added
            if request_id not in self.known:
                self.known[request_id] = True
                new.append(
                    NewRequestData(
                        request_id=request_id,
                        token_ids=list(self.tokens[request_id]),
                        num_prompt_tokens=self.prompts[request_id],
                        params=self.params[request_id],
                        block_ids=(list(held),),
                        num_computed_tokens=self.computed[request_id],
                    )
                )
            elif added:
                deltas.append(
                    RequestDelta(
                        request_id=request_id, new_block_ids=(added,), num_computed_tokens=self.computed[request_id]
                    )
                )
        plan = SchedulerOutput(
            step=self.step_number, num_scheduled_tokens=dict(counts), new_requests=new, deltas=deltas,
            finished_ids=self.finished, preempted_ids=self.preempted, defer_sampling=self.defer,
        )  # fmt: skip
        self.step_number, self.finished, self.preempted = self.step_number + 1, [], []
        answer = self.executor.execute_model(plan)
        for request_id, count in counts.items():
            self.computed[request_id] += count
        return answer

    def settle(self, answer):
        """Take in an output, or sample the step of this number; returns the output."""
        output = self.executor.sample_tokens(answer, None).result(timeout=0) if isinstance(answer, int) else answer
        for request_id, sampled in zip(output.request_ids, output.sampled_token_ids, strict=True):
            if request_id in self.known:
                self.tokens[request_id] += sampled
        return output

    def left(self, request_id):
        """Tokens that are known and not computed."""
        return len(self.tokens[request_id]) - self.computed[request_id]

    def output(self, request_id):
        return self.tokens[request_id][self.prompts[request_id] :]

    def generate(self, request_id, count, chunk=1000):
        """Run one request alone until it has `count` output tokens."""
        while len(self.output(request_id)) < count:
            self.step({request_id: min(chunk, self.left(request_id))})
        return self.output(request_id)[:count]
