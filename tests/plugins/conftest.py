"""The packages of `examples`, built and installed once for all tests, beside a wheel of enginecore itself."""

import pytest

from tests.plugins.environment import REPOSITORY, install_packages

PACKAGES = (
    "third_party_policy",
    "third_party_scheduler",
    "third_party_kv_cache",
    "third_party_transport",
    "third_party_lab",
    "third_party_architecture",
)


@pytest.fixture(scope="session")
def third_party(tmp_path_factory):
    """An environment with all of them."""
    packages = [REPOSITORY / "examples" / name for name in PACKAGES]
    return install_packages(tmp_path_factory.mktemp("third_party"), packages)
