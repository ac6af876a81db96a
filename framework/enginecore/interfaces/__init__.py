"""The seams: what a scheduler, KV cache manager, executor, transport, tokenizer and observer must offer."""

from enginecore.interfaces.executor import Executor, ExecutorCapabilities, KVCacheConfig, KVCacheSpec, ModelInfo
from enginecore.interfaces.kv_cache_manager import CachedPrefix, KVCacheManager, KVCacheStats
from enginecore.interfaces.observer import RequestRecord, StepRecord
from enginecore.interfaces.scheduler import Outputs, Scheduler
from enginecore.interfaces.tokenizer import DecodeStream, Tokenizer
from enginecore.interfaces.transport import (
    AsyncEngineCoreClient,
    Channel,
    ChannelTransport,
    EngineCoreApi,
    EngineCoreClient,
    ServerChannel,
    Transport,
)
from enginecore.wire import Frame

__all__ = [
    "AsyncEngineCoreClient",
    "CachedPrefix",
    "Channel",
    "ChannelTransport",
    "DecodeStream",
    "EngineCoreApi",
    "EngineCoreClient",
    "Executor",
    "ExecutorCapabilities",
    "Frame",
    "KVCacheConfig",
    "KVCacheManager",
    "KVCacheSpec",
    "KVCacheStats",
    "ModelInfo",
    "Outputs",
    "RequestRecord",
    "Scheduler",
    "ServerChannel",
    "StepRecord",
    "Tokenizer",
    "Transport",
]
