"""Dead letters: rollouts that were given up are tried again, or dropped."""

from collections.abc import Sequence

import msgspec

from agent_layer.dispatcher.inspection import QueueInspector
from agent_layer.dispatcher.models import RolloutState
from agent_layer.dispatcher.scripts import Scripts
from agent_layer.dispatcher.submission import add_groups
from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.infra import batched
from agent_layer.schema import FINAL_STATUSES, content_hash

_ROWS_PER_CALL = 256
"""Rollouts that one script call moves, so that no call holds up the server for long."""
_MAX_NAMED = 8


def retry_dead(scripts: Scripts, rollout_ids: Sequence[str]) -> list[str]:
    """See ``Dispatcher.retry_dead``."""
    inspector = QueueInspector(scripts)
    dead = {state.rollout_id: state for state in inspector.dead(rollout_ids, len(rollout_ids))} if rollout_ids else {}
    for rollout_id in rollout_ids:
        if rollout_id not in dead:
            raise NotFoundError(
                f"rollout {rollout_id}: expected one that was given up, found none; 'agent-layer dead list' shows them"
            )
    answers = [answer for page in batched(dead, _ROWS_PER_CALL) for answer in scripts.retry_dead(page)]
    in_place = [state.group_id for state, answer in zip(dead.values(), answers, strict=True) if answer == ""]
    # dead a moment ago: this call's first try did it, and its answer was lost; or another caller did
    lost = [rollout_id for rollout_id, answer in zip(dead, answers, strict=True) if answer == "unknown"]
    in_place += [state.group_id for state in inspector.read_rollouts(iter(lost)) if state.status not in FINAL_STATUSES]
    decided: dict[str, list[RolloutState]] = {}
    for state, answer in zip(dead.values(), answers, strict=True):
        if answer == "closed":
            decided.setdefault(state.group_id, []).append(state)
    again, unreadable = dict.fromkeys(in_place), list[str]()
    for group_id, states in decided.items():
        try:
            again[_ask_again(scripts, group_id, states)] = None
        except CorruptRecordError:
            unreadable.append(group_id)
    if unreadable:
        more = ", …" if len(unreadable) > _MAX_NAMED else ""
        raise CorruptRecordError(
            f"{', '.join(unreadable[:_MAX_NAMED])}{more}: expected tasks that this version can read, found others;"
            " all else is tried again, these need a later version, or 'agent-layer dead drop'"
        )
    return list(again)


def drop_dead(scripts: Scripts, rollout_ids: Sequence[str]) -> int:
    """See ``Dispatcher.drop_dead``."""
    return sum(scripts.drop_dead(page) for page in batched(rollout_ids, _ROWS_PER_CALL))


def _ask_again(scripts: Scripts, group_id: str, dead: Sequence[RolloutState]) -> str:
    """Submit first, then forget: a caller that dies in between submits the same group again, which is known by then."""
    task = QueueInspector(scripts).task(group_id)
    if task is None:
        raise NotFoundError(
            f"group {group_id}: expected its task to be kept for its dead rollouts, found none; submit it"
        )
    ids = sorted(state.rollout_id for state in dead)
    again = f"{task.id}.{content_hash(' '.join(ids).encode())[:12]}"
    add_groups(scripts, [(again, msgspec.structs.replace(task, group_size=len(ids), launch=None))])
    scripts.drop_dead(ids)
    return again
