"""The frozen packages, built and installed beside a wheel of today's enginecore."""

import pytest

from tests.compatibility.frozen import V1
from tests.plugins.environment import install_packages


@pytest.fixture(scope="session")
def v1(tmp_path_factory):
    """An environment with all packages of the first version."""
    packages = sorted(path.parent for path in V1.glob("*/pyproject.toml"))
    return install_packages(tmp_path_factory.mktemp("v1"), packages)
