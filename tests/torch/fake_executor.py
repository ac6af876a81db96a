"""The executor `multiproc` on ranks without a model, as a component that other processes can import."""

from enginecore.plugin import Component
from enginecore_torch.settings import MultiprocExecutorSettings


def make(settings, context):
    from enginecore_torch.multiproc.executor import MultiprocExecutor

    return MultiprocExecutor(settings, context, worker="tests.torch.fake_worker:main")


FAKE = Component(kind="executor", name="fake", factory=make, settings=MultiprocExecutorSettings)
