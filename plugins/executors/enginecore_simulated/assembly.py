"""Parts of the executor, made from settings: a model, cards, costs."""

from enginecore.errors import ConfigurationError, ModelError
from enginecore.plugin import ExecutorContext
from enginecore_models.location import locate
from enginecore_simulated import SimulatedExecutorSettings
from enginecore_simulation import HARDWARE, CostModel, Deployment, Hardware, ModelShape, close_presets, find_shape
from enginecore_simulation.files import read_costs


def find_deployment(settings: SimulatedExecutorSettings, context: ExecutorContext) -> Deployment:
    """The model, and the cards that it is to run on.

    Raises:
        ConfigurationError: the model is not known, or cannot be shared out so.
    """
    custom = settings.custom
    hardware = Hardware(**custom.model_dump()) if custom is not None else HARDWARE[settings.hardware]
    return Deployment(
        hardware=hardware,
        shape=_find_shape(settings.shape or context.model).with_dtype(context.dtype),
        tensor_parallel_size=settings.tensor_parallel_size,
        pipeline_parallel_size=settings.pipeline_parallel_size,
    )


def _find_shape(name: str) -> ModelShape:
    """By preset or file, else as an executor would find the model itself."""
    if (shape := find_shape(name)) is not None:
        return shape
    try:
        shape = find_shape(str(locate(name, ("config.json",))))
    except ModelError as error:
        raise ConfigurationError(
            f"executor.simulated cannot tell the shape of the model: {name!r} is no preset, and {error}"
            f"{close_presets(name)}"
        ) from error
    if shape is None:
        raise ConfigurationError(
            f"executor.simulated cannot tell the shape of {name!r}, which has no config.json: set "
            "executor.simulated.shape to a preset's name, a config.json, or a folder with one"
        )
    return shape


def find_costs(settings: SimulatedExecutorSettings, deployment: Deployment) -> CostModel:
    """Costs of steps: as measured, else as derived; with single parameters as set.

    Raises:
        ConfigurationError: the file of measured costs cannot be used.
    """
    model = CostModel.uniform(deployment.costs()) if settings.costs is None else read_costs(settings.costs)
    given = settings.parameters.model_dump(exclude_none=True)
    return model.overridden(given) if given else model
