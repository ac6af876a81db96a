"""Loaders of published traces, which take the files as they are, and of the project's own format."""

from enginecore_lab.workloads.loaders.azure import load_azure
from enginecore_lab.workloads.loaders.bailian import load_bailian
from enginecore_lab.workloads.loaders.burstgpt import load_burstgpt
from enginecore_lab.workloads.loaders.mooncake import load_mooncake
from enginecore_lab.workloads.loaders.own import load_own, save_own
from enginecore_lab.workloads.loaders.sharegpt import Conversation, count_words, load_sharegpt

__all__ = [
    "Conversation",
    "count_words",
    "load_azure",
    "load_bailian",
    "load_burstgpt",
    "load_mooncake",
    "load_own",
    "load_sharegpt",
    "save_own",
]
