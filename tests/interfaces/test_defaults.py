"""What the members of an interface do that a subclass leaves out."""

from types import SimpleNamespace
from typing import Any

import pytest

from enginecore.errors import ConfigurationError, EngineCoreError, EngineDeadError, InvalidRequestError, UtilityError
from enginecore.interfaces import (
    CachedPrefix,
    DecodeStream,
    EvictionOrder,
    Executor,
    KVCacheManager,
    Observer,
    Scheduler,
    Tokenizer,
    VictimChoice,
)

INTERFACES = (DecodeStream, EvictionOrder, Executor, KVCacheManager, Observer, Scheduler, Tokenizer, VictimChoice)


def minimal(interface, **members):
    """An instance of a class that has the required members alone; those not given answer None."""
    required = {name: lambda self, *args, **kwargs: None for name in getattr(interface, "__abstractmethods__", ())}
    return type(f"Minimal{interface.__name__}", (interface,), {**required, **members})()


def request(request_id):
    return SimpleNamespace(request_id=request_id)


def test_a_scheduler_scans_waits_for_no_time_and_constrains_nothing():
    scheduler = minimal(Scheduler, unfinished_requests=[request("a"), request("b")])
    assert [scheduler.has_request(name) for name in ("a", "b", "c")] == [True, True, False]
    assert scheduler.wake_time is None
    assert scheduler.get_grammar_bitmask(None) is None


def test_a_kv_cache_manager_peeks_by_looking_up_and_moves_no_blocks():
    found = CachedPrefix(([3, 1],), 32)
    manager = minimal(KVCacheManager, get_computed_blocks=lambda self, request: found)
    assert manager.peek_cached_tokens(request("a")) == 32
    for refused in (
        lambda: manager.set_aside(request("a"), 1, 2),
        lambda: manager.give_back([1, 2]),
        manager.take_published,
        manager.take_evicted,
    ):
        with pytest.raises(NotImplementedError, match=r"^MinimalKVCacheManager "):
            refused()


def test_an_order_of_eviction_forgets_nothing_by_itself():
    assert minimal(EvictionOrder).lifetime is None


def test_an_executor_has_no_workers_no_drafts_no_adapters_and_never_samples_later():
    executor = minimal(Executor)
    executor.register_failure_callback(pytest.fail)
    assert executor.take_draft_token_ids() == {}
    assert executor.list_adapters() == []
    for change in (lambda: executor.add_adapter("french", "/adapters/fr"), lambda: executor.remove_adapter("french")):
        with pytest.raises(UtilityError, match=r"^MinimalExecutor has no adapters: 'french' cannot be "):
            change()
    with pytest.raises(AttributeError, match=r"^MinimalExecutor has no worker with a method 'start_profile'"):
        executor.collective_rpc("start_profile", "/tmp")
    with pytest.raises(EngineCoreError, match=r"^MinimalExecutor cannot sample step 7: .* must override sample_tokens"):
        executor.sample_tokens(7, None)


def test_an_executor_that_is_dead_says_so_before_anything_else():
    def check_health(self):
        raise EngineDeadError("it was shut down")

    with pytest.raises(EngineDeadError, match="it was shut down"):
        minimal(Executor, check_health=check_health).collective_rpc("start_profile")


def test_a_tokenizer_has_no_template_and_does_not_say_what_its_tokens_are():
    tokenizer = minimal(Tokenizer)
    with pytest.raises(InvalidRequestError, match=r"^MinimalTokenizer has no chat template: pass the prompt as text"):
        tokenizer.apply_chat_template([{"role": "user", "content": "Hello"}])
    with pytest.raises(ConfigurationError, match=r"^MinimalTokenizer cannot say what its tokens are"):
        tokenizer.vocabulary(100)


def test_an_observer_ignores_what_it_does_not_override():
    observer: Any = Observer()
    observer.step_finished(None)
    observer.request_finished(None)


# -- what must hold of every interface --


@pytest.mark.parametrize("interface", INTERFACES)
def test_an_interface_leaves_the_slots_of_its_subclasses_alone(interface):
    slotted = type("Slotted", (interface,), {"__slots__": ("value",)})
    assert not hasattr(object.__new__(_complete(slotted)), "__dict__")


def _complete(cls):
    members = {name: None for name in getattr(cls, "__abstractmethods__", ())}
    return type("Complete", (cls,), {"__slots__": (), **members})
