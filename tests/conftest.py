"""What all tests share."""

import os

import pytest

from tests.registry.fake_plugins import Site

# two threads that wait for each other crawl where tests share their CPUs with anything else
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on the path, into which a test installs distributions with plugins."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    site = Site(folder)
    yield site
    site.forget_modules()
