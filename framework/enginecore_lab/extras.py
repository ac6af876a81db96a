"""Libraries that only the lab needs: imported when something is first asked of them."""

from importlib import import_module
from types import ModuleType

from enginecore.errors import ConfigurationError


def require(module: str) -> ModuleType:
    """A module of the extra `lab`, such as "scipy.stats".

    Raises:
        ConfigurationError: it is not installed; says how to install it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # it is there, and lacks something itself
        raise ConfigurationError(
            f"{package} is not installed, and the lab needs it: pip install 'enginecore[lab]'"
        ) from None
