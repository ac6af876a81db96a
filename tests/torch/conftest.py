import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Threads that wait for one another crawl when other processes share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
