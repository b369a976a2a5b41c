"""A new run that begins at the last clean checkpoint of another, and never draws excluded tasks.

Its groups are its own, so no trajectory of the old run is delivered to it. Its version 0 names the checkpoint as
parent, so that its lineage goes on there. The trainer publishes the checkpoint's weights as version 1, and nothing is
sampled before that.
"""

import shutil
import time
from collections.abc import Collection
from pathlib import Path

import msgspec

from agent_layer.engines import get_policy, newest_policy, register_policy
from agent_layer.errors import BadInputError, NotFoundError
from agent_layer.schema import CheckpointRef, PolicyVersion, check_name
from agent_layer.settings import Settings
from agent_layer.store import Store
from trainer_adapter.lineage import read_parent, walk_parents
from trainer_adapter.loop import CheckpointDirectory, Cursor, hold_run
from trainer_adapter.recall.trace import find_kept_checkpoint
from trainer_adapter.tasks import write_exclusions


def branch_run(
    settings: Settings, store: Store, clean: CheckpointRef, run: str, excluded: Collection[str], model: Path | None
) -> CheckpointRef | None:
    """Prepare a run that goes on from the newest checkpoint that this machine keeps up to a clean state.

    A preparation that was killed is completed by another one under the same name.

    Args:
        settings: locations of checkpoints.
        store: of the records.
        clean: last state to begin with.
        run: new name.
        excluded: ids of tasks that the run never draws.
        model: of its configuration; None: not known.

    Returns: the checkpoint that it begins with; None: none is kept, so it begins with the model of its configuration.

    Raises:
        BadInputError: there is such a run, the name is not valid, or no checkpoint is kept and the model is not clean.
        NotFoundError: the trainer of the old run deleted the checkpoint meanwhile.
    """
    check_name(run, "run")
    checkpoints, kept = CheckpointDirectory(settings, run), find_kept_checkpoint(settings, store, clean)
    with hold_run(settings, run):
        newest = newest_policy(store.redis, store.keys, run)
        is_new = newest is None or (kept is not None and (newest.number, newest.parent) == (0, kept.place))
        if not is_new or checkpoints.newest() is not None:
            raise BadInputError(f"run {run}: expected a new name, found a run that has begun; choose another with --as")
        if kept is None and not _is_clean(store, model, clean):
            raise BadInputError(
                f"model {model}: expected weights of step {clean.step} of run {clean.run} or from before it, found"
                " later ones; name another model in the configuration"
            )
        write_exclusions(settings, run, excluded)
        if kept is None:
            return None
        parent, directory, cursor = kept
        base = get_policy(store.redis, store.keys, parent.run, 0)
        policy = PolicyVersion(
            run=run,
            number=0,
            location=base.location if base else str(directory),
            created_at=time.time(),
            parent=parent,
        )
        register_policy(store.redis, store.keys, policy, store.append)
        try:
            checkpoints.save(
                _begin_again(cursor, excluded), lambda pending: shutil.copytree(directory, pending, dirs_exist_ok=True)
            )
        except (FileNotFoundError, shutil.Error) as error:
            raise NotFoundError(
                f"checkpoint {directory}: expected it to stay until it is copied, but a trainer deleted it; stop"
                f" run {parent.run}, and choose another name with --as"
            ) from error
    return parent


def _is_clean(store: Store, model: Path | None, clean: CheckpointRef) -> bool:
    """Whether a model is not known to hold weights that are not behind the clean state."""
    if model is None or (origin := read_parent(model)) is None:
        return True
    parents = walk_parents(store, clean.run, clean.step)
    return any(origin.run == run and (last is None or origin.step <= last) for run, last in parents)


def _begin_again(cursor: Cursor, excluded: Collection[str]) -> Cursor:
    """Return the position of a run whose version 1 are the weights of the checkpoint.

    Open groups are sampled again, each as many versions ahead as before, without those of excluded tasks.
    """
    version = max(cursor.open_starts, default=0) if cursor.policy_version is None else cursor.policy_version
    size = len(cursor.open_draws)
    starts, tries = cursor.open_starts or [0] * size, cursor.open_tries or [0] * size
    groups = zip(cursor.open_positions, starts, tries, cursor.open_draws, strict=False)
    kept = [group for group in groups if group[3].task_id not in excluded]
    return msgspec.structs.replace(
        cursor,
        policy_version=None,
        first_version=1,
        open_positions=[position for position, _, _, _ in kept],
        open_starts=[start - version + 1 for _, start, _, _ in kept],
        open_tries=[num for _, _, num, _ in kept],
        open_draws=[draw for _, _, _, draw in kept],
        taken=[],
    )
