import pytest
import torch

from tests.torch.tiny import make_hf_model


@pytest.fixture(autouse=True)
def one_thread():
    """Threads that wait for one another crawl when other processes share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A tiny random model on disk: three layers, three KV groups of two query heads, tied."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    make_hf_model(num_key_value_heads=3, tie_word_embeddings=True).save_pretrained(folder)
    return folder
