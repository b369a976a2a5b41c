"""Tasks that one run never draws, beside what the filters of its configuration leave out."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from agent_layer.errors import CorruptRecordError
from agent_layer.infra import make_private, replace_file
from agent_layer.settings import Settings
from trainer_adapter.selection import ExcludeTasks


def exclusions_path(settings: Settings, run: str) -> Path:
    """Return the file of a run's excluded tasks."""
    return settings.dir / "runs" / run / "excluded-tasks.json"


def write_exclusions(settings: Settings, run: str, task_ids: Iterable[str]) -> None:
    """Exclude tasks from a run, from its next draw on; they take the place of those excluded before."""
    path = exclusions_path(settings, run)
    make_private(path.parent)
    replace_file(path, [msgspec.json.encode(sorted(set(task_ids)))])


def read_exclusions(settings: Settings, run: str) -> list[ExcludeTasks]:
    """Return the filter that leaves out a run's excluded tasks; none where nothing is excluded.

    Raises: CorruptRecordError: the file is damaged; the run must not go on without it.
    """
    path = exclusions_path(settings, run)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=frozenset[str])
    except FileNotFoundError:
        return []
    except msgspec.DecodeError as error:
        raise CorruptRecordError(
            f"excluded tasks {path}: expected a list of task ids, found {error}; restore the file"
        ) from error
    return [ExcludeTasks(ids=found)] if found else []
