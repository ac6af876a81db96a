"""Checks: what an executor declares before the first step."""

from collections.abc import Mapping

from enginecore.interfaces import ExecutorCapabilities, KVCacheSpec, ModelInfo
from enginecore_conformance.checks import Violation, check
from enginecore_conformance.executors.bench import ExecutorBench
from enginecore_conformance.executors.lending import BLOCK_SIZE


@check("executor")
def what_it_declares_is_constant(bench: ExecutorBench) -> None:
    """`capabilities` and `model_info` are what they are from the start, and stay so once steps have
    run.
    """
    before = bench.executor.capabilities, bench.executor.model_info
    if not isinstance(before[0], ExecutorCapabilities) or not isinstance(before[1], ModelInfo):
        raise Violation(f"it declares {before!r:.300}", "ExecutorCapabilities and ModelInfo")
    request = bench.add_request(bench.prompt("constant", 9))
    bench.step([request])
    after = bench.executor.capabilities, bench.executor.model_info
    if after != before:
        raise Violation(f"after a step it declares {after!r:.300}", f"{before!r:.300}, as before")


@check("executor")
def the_model_has_tokens_and_a_length(bench: ExecutorBench) -> None:
    """`model_info` names a vocabulary of at least two tokens, EOS tokens in it, and a context of at
    least a token.
    """
    info = bench.executor.model_info
    if info.vocab_size < 2 or info.max_model_len < 1:
        raise Violation(f"{info!r}", "vocab_size of at least 2, max_model_len of at least 1")
    if outside := [token for token in info.eos_token_ids if not 0 <= token < info.vocab_size]:
        raise Violation(f"EOS tokens {outside} with vocab_size = {info.vocab_size}", "EOS tokens are tokens")


@check("executor")
def kv_cache_specs_fit_the_engine(bench: ExecutorBench) -> None:
    """`get_kv_cache_specs` gives a KVCacheSpec by name for each layer, the same each time, with
    blocks as long as the engine's.
    """
    specs = bench.executor.get_kv_cache_specs()
    if not isinstance(specs, Mapping) or not specs:
        raise Violation(f"{specs!r:.200}", "a mapping with a spec for each layer that has a KV cache")
    for name, spec in specs.items():
        if not isinstance(name, str) or not isinstance(spec, KVCacheSpec):
            raise Violation(f"{name!r}: {spec!r:.200}", "a KVCacheSpec by name of its layer")
        if spec.block_size != BLOCK_SIZE:
            raise Violation(f"{name!r} has blocks of {spec.block_size} tokens", f"{BLOCK_SIZE}, as the context says")
    again = bench.executor.get_kv_cache_specs()
    if dict(again) != dict(specs):
        raise Violation(f"the second time {dict(again)!r:.200}", f"as the first time: {dict(specs)!r:.200}")


@check("executor")
def memory_is_a_number_of_bytes(bench: ExecutorBench) -> None:
    """`determine_available_memory` gives bytes, as an integer that is not negative."""
    found = bench.executor.determine_available_memory()
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise Violation(f"{found!r}", "a number of bytes: an integer of at least 0")
