"""The interfaces: a base class for each kind of component and for observers, and the views that they get."""

from enginecore.interfaces.client import AsyncEngineCoreClient, EngineCoreClient
from enginecore.interfaces.engine_core import EngineCoreApi
from enginecore.interfaces.eviction import CachedContent, EvictionOrder
from enginecore.interfaces.executor import Executor, ExecutorCapabilities, KVCacheConfig, KVCacheSpec, ModelInfo
from enginecore.interfaces.kv_cache_manager import CachedPrefix, KVCacheManager, KVCacheStats, PublishedBlocks
from enginecore.interfaces.observer import Observer, RequestRecord, StepRecord
from enginecore.interfaces.scheduler import Outputs, Scheduler
from enginecore.interfaces.scheduler_view import Rank, RequestView, SchedulerView, WaitingView
from enginecore.interfaces.tokenizer import DecodeStream, Tokenizer, Vocabulary
from enginecore.interfaces.transport import Channel, ServerChannel, Transport
from enginecore.interfaces.victim import VictimChoice
from enginecore.wire import Frame

__all__ = [
    "AsyncEngineCoreClient",
    "CachedContent",
    "CachedPrefix",
    "Channel",
    "DecodeStream",
    "EngineCoreApi",
    "EngineCoreClient",
    "EvictionOrder",
    "Executor",
    "ExecutorCapabilities",
    "Frame",
    "KVCacheConfig",
    "KVCacheManager",
    "KVCacheSpec",
    "KVCacheStats",
    "ModelInfo",
    "Observer",
    "Outputs",
    "PublishedBlocks",
    "Rank",
    "RequestRecord",
    "RequestView",
    "Scheduler",
    "SchedulerView",
    "ServerChannel",
    "StepRecord",
    "Tokenizer",
    "Transport",
    "VictimChoice",
    "Vocabulary",
    "WaitingView",
]
