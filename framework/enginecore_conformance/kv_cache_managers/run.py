"""A run of a KV cache manager, watched, call by call, beside a plain model of what it may hit."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from enginecore.clock import VirtualClock
from enginecore.contracts import BrokenRule, WatchedKVCacheManager
from enginecore.interfaces import CachedPrefix, KVCacheConfig
from enginecore.messages import EngineCoreRequest
from enginecore.plugin import Component, EvictionContext, KVCacheManagerContext
from enginecore.request import Request
from enginecore.sampling import SamplingParams
from enginecore_conformance.judge import Judge
from enginecore_conformance.kv_cache_managers.model import CacheModel
from enginecore_conformance.parts import Parts
from enginecore_conformance.subject import Options, Subject
from enginecore_conformance.trace import Trace

MAX_MODEL_LEN = 1 << 16


class KVCacheRun:
    """A KV cache manager whose scheduler is the caller; each call is checked against the contract.

    Args:
        component: The KV cache manager, as in `check_component`.
        settings: Settings of the component.
        engine: Further settings of the engine: which order of eviction it works with.
        allow: As `plugins.allow`.
        **conditions: `num_blocks`, `block_size`, `enable_prefix_caching`.

    Raises:
        BrokenRule: out of each method, if the manager breaks its contract: names the rule.
    """

    def __init__(
        self,
        component: Component | str,
        *,
        settings: Mapping[str, Any] | None = None,
        engine: Mapping[str, Any] | None = None,
        allow: Sequence[str] | None = None,
        **conditions: Any,
    ) -> None:
        subject = Subject.find(component, Options(settings=settings, engine=engine, allow=allow))
        self._start(Parts(subject.loaded), **conditions)

    @classmethod
    def of(cls, parts: Parts, conditions: Mapping[str, Any]) -> "KVCacheRun":
        """A run of these parts."""
        run = cls.__new__(cls)
        run._start(parts, **conditions)
        return run

    def _start(
        self, parts: Parts, num_blocks: int = 16, block_size: int = 4, enable_prefix_caching: bool = True
    ) -> None:
        config = KVCacheConfig(num_blocks, block_size, (("layers.0",),))
        make = parts.make_eviction if enable_prefix_caching else None
        eviction = make(EvictionContext(num_blocks=num_blocks, block_size=block_size, seed=0)) if make else None
        context = KVCacheManagerContext(
            config=config, enable_prefix_caching=enable_prefix_caching, clock=VirtualClock(), eviction=eviction
        )
        self.requests: dict[str, Request] = {}
        self._numbers = itertools.count()
        with Judge("kv_cache_manager"):
            self.manager = WatchedKVCacheManager(parts.make_kv_cache_manager(context))
        self._model = CacheModel(block_size, enabled=enable_prefix_caching)

    def add(
        self,
        name: str,
        tokens: Sequence[int],
        *,
        salt: str | None = None,
        adapter: str | None = None,
        skip: bool = False,
    ) -> Request:
        """A request comes. It holds nothing yet."""
        params = SamplingParams(max_tokens=None, ignore_eos=True)
        message = EngineCoreRequest(
            request_id=name,
            prompt_token_ids=list(tokens),
            params=params,
            cache_salt=salt,
            adapter=adapter,
            skip_prefix_cache=skip,
        )
        request = Request(
            message, params, arrival_number=next(self._numbers), arrival_time=0.0, max_model_len=MAX_MODEL_LEN
        )
        self.requests[name] = request
        return request

    def start(self, name: str, tokens: Sequence[int], written: int | None = None, **identity: Any) -> None:
        """A request comes, and is admitted; so many of its tokens are written, or all."""
        self.add(name, tokens, **identity)
        self.admit(name)
        self.write(name, written)

    def admit(self, name: str) -> bool:
        """Look a request up and give it blocks, if they fit; whether it holds some now."""
        request = self.requests.get(name)
        if request is None or self._holds(request):
            return False
        prefix = self.lookup(name)
        with Judge("kv_cache_manager"):
            added = self.manager.allocate_slots(request, request.num_tokens, prefix)
            self._look()
        if added is None:
            return False
        self._model.hold(list(added[0]), list(prefix.block_ids[0]))
        request.num_scheduled_tokens = request.num_computed_tokens = prefix.num_tokens
        if request.num_cached_tokens < 0:
            request.num_cached_tokens = prefix.num_tokens
        return True

    def write(self, name: str, num_tokens: int | None = None) -> None:
        """A step computes some more of its known tokens, as far as it has slots, and publishes what
        is full.
        """
        request = self.requests.get(name)
        if request is None or not self._holds(request):
            return
        blocks = self._blocks(request)
        start, most = request.num_computed_tokens, min(request.num_tokens, len(blocks) * self.manager.block_size)
        end = most if num_tokens is None else min(start + num_tokens, most)
        request.num_scheduled_tokens = request.num_computed_tokens = end
        self._model.write(request, blocks, start, end)
        with Judge("kv_cache_manager"):
            self.manager.cache_blocks(request, end)
            self._look()
        self._model.publish(request, blocks, end)

    def decode(self, name: str, *tokens: int) -> None:
        """Give a request tokens; those that it gets slots for are computed."""
        request = self.requests.get(name)
        if request is None or not self._holds(request):
            return
        request.append(list(tokens))
        with Judge("kv_cache_manager"):
            added = self.manager.allocate_slots(request, request.num_tokens)
            self._look()
        if added is not None:
            self._model.hold(list(added[0]), [])
        self.write(name)

    def free(self, name: str) -> None:
        """Free the blocks of a request, if it holds any; the request may come again."""
        request = self.requests.get(name)
        if request is None:
            return
        held = self._blocks(request)
        with Judge("kv_cache_manager"):
            self.manager.free(request)
            self._look()
        if held:
            request.preempt()

    def lookup(self, name: str) -> CachedPrefix:
        """Look up the cached prefix of a request, by both members for it."""
        request = self.requests[name]
        with Judge("kv_cache_manager"):
            num_tokens = self.manager.peek_cached_tokens(request)
            prefix = self.manager.get_computed_blocks(request)
            if num_tokens != prefix.num_tokens:
                raise BrokenRule(
                    "kv_cache_manager", "lookups_change_nothing",
                    f"peek_cached_tokens gave {num_tokens} and get_computed_blocks {prefix.num_tokens} tokens",
                )  # fmt: skip
        self._model.check(request, prefix)
        return prefix

    def look(self, name: str) -> None:
        """As `lookup`, if there is such a request."""
        if name in self.requests:
            self.lookup(name)

    def freeable(self, *names: str) -> None:
        """How many blocks would come back from these, as the manager says; also beside a prefix of
        the first.
        """
        requests = [self.requests[name] for name in dict.fromkeys(names) if name in self.requests]
        with Judge("kv_cache_manager"):
            self.manager.num_freeable_blocks(requests)
            waiting = [request for request in self.requests.values() if not self._holds(request)]
            if waiting:
                self.manager.num_freeable_blocks(requests, self.manager.get_computed_blocks(waiting[0]))

    def reset(self) -> None:
        """Forget the prefix cache."""
        with Judge("kv_cache_manager"):
            if self.manager.reset_prefix_cache():
                self._model.reset()
            self._look()

    def play(self, trace: Trace) -> None:
        """All moves of a trace, and the end."""
        for move in trace.moves:
            getattr(self, move.method)(*move.args, **move.kwargs)
        self.finish()

    def finish(self) -> None:
        """Free all requests: then all blocks must be free."""
        for name in list(self.requests):
            self.look(name)
            self.free(name)
        if self.manager.num_free_blocks != self.manager.num_blocks:
            raise BrokenRule(
                "kv_cache_manager", "freed_blocks_come_back",
                f"none is held, and {self.manager.num_free_blocks} of {self.manager.num_blocks} blocks are free",
            )  # fmt: skip

    def _holds(self, request: Request) -> bool:
        return bool(self._blocks(request))

    def _blocks(self, request: Request) -> list[int]:
        return list(self.manager.get_block_ids(request)[0])

    def _look(self) -> None:
        self.manager.check_invariants()
        self.manager.get_stats()
