"""Our tasks as the prompts of a trainer of veRL that a user starts. Nothing here imports veRL or Ray."""

from itertools import chain
from pathlib import Path

from omegaconf import DictConfig, ListConfig, OmegaConf
from torch.utils.data import Dataset

from agent_layer.dispatcher import read_tasks
from agent_layer.schema import Task
from agent_layer.settings import Settings, load_settings
from trainer_adapter.config import HeldOutConfig, read_held_out_option
from trainer_adapter.foreign import leave_out


class TaskDataset(Dataset[dict[str, object]]):
    """The tasks of a file as veRL's prompts, without those that ``data.held_out`` names; arguments are veRL's."""

    def __init__(self, data_files: str | ListConfig, config: DictConfig, **options: object) -> None:
        del options
        settings = load_settings()
        tasks = read_task_files(data_files, settings)
        self._tasks, _ = leave_out(tasks, list_held_out(config), settings, settings.run)

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> dict[str, object]:
        task_id = self._tasks[index].id
        return {"raw_prompt": [{"role": "user", "content": task_id}], "index": index, "task_id": task_id}


def read_task_files(files: str | ListConfig, settings: Settings) -> list[Task]:
    """Return the tasks of ``data.train_files``.

    Raises: BadInputError: a file is missing, or holds something else.
    """
    paths = [files] if isinstance(files, str) else files
    return list(chain.from_iterable(read_tasks(Path(str(path)), run=settings.run) for path in paths))


def list_held_out(config: DictConfig) -> list[HeldOutConfig]:
    """Return the sets that ``data.held_out`` names, as ``held_out`` of ``agent-layer train`` spells them.

    Raises: BadInputError: it is something else.
    """
    option = config.get("held_out")
    return read_held_out_option(OmegaConf.to_container(option) if OmegaConf.is_config(option) else option)
