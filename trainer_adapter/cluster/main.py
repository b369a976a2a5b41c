"""Process that starts Ray and runs stock ``main_ppo``: ``python -m trainer_adapter.cluster.main DIRECTORY``."""

import sys
from pathlib import Path

import msgspec
import ray
from omegaconf import DictConfig
from ray.exceptions import RayTaskError
from verl.trainer import main_ppo

from agent_layer.settings import adopt_environment, program_environment
from trainer_adapter.cluster.end import read_end, write_end
from trainer_adapter.cluster.overrides import check_config, compose_config
from trainer_adapter.cluster.row_store import OnOwnMachine, keep_rows_here

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportUntypedBaseClass=false
# veRL and Ray carry few types.

_STOCK = main_ppo.TaskRunnerV1.__ray_metadata__.modified_class  # pyright: ignore[reportAttributeAccessIssue]  # Ray forbids a subclass of an actor


class ClusterRunner(_STOCK):
    """veRL's task runner, in whose process our trainers are known."""

    def take_variables(self, variables: dict[str, str]) -> None:
        """Take the variables of the process that starts the run; Ray's own stay."""
        adopt_environment(variables)

    def run(self, config: DictConfig) -> None:
        """Run the training process."""
        from trainer_adapter.cluster import trainer  # noqa: PLC0415  # registers them; it asks for the platform
        from trainer_adapter.cluster.plugin import use_own_servers  # noqa: PLC0415

        use_own_servers()
        keep_rows_here()
        trainer.register()
        super().run(config)


class OwnMachineRunner(OnOwnMachine):
    """That task runner on this machine of a joined cluster, as ``run_ppo`` starts it.

    It alone uses Redis and the store, so it alone gets the variables of this process, secrets among them: in a call,
    because Ray shows the arguments of an actor's constructor and its runtime environment, but not those of calls.
    """

    def remote(self, *arguments: object, **named: object) -> object:
        """Start it."""
        actor = super().remote(*arguments, **named)
        ray.get(actor.take_variables.remote(program_environment()))  # pyright: ignore[reportAttributeAccessIssue]  # Ray's handles have the methods of their class
        return actor


def run(directory: Path) -> None:
    """Train, with the values that ``start.ray`` wrote into the directory."""
    overrides = msgspec.json.decode((directory / "verl.json").read_bytes(), type=dict[str, object])
    config = compose_config(overrides)
    check_config(config)
    is_joined = config.ray_kwargs.ray_init.get("address") is not None
    try:
        runner = ray.remote(ClusterRunner)
        main_ppo.run_ppo(config, task_runner_class=OwnMachineRunner(runner) if is_joined else runner)
    except Exception as error:  # the launcher reads it
        if read_end(directory) is None:  # else its runner knew why it ended at once
            write_end(directory, _find_cause(error))
        raise
    finally:
        ray.shutdown()


def _find_cause(error: BaseException) -> BaseException:
    """Return what was raised in the process where it happened; Ray wraps it at each call between processes."""
    while isinstance(error, RayTaskError) and isinstance(error.cause, Exception):
        error = error.cause
    return error


if __name__ == "__main__":
    run(Path(sys.argv[1]))
