import pytest

from tests.registry.fake_plugins import Site


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    site = Site(folder)
    yield site
    site.forget_modules()
