"""Which trajectories are recalled: those that pass filters, those that a version of a scorer judged, or both."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from agent_layer.errors import BadInputError, NotFoundError
from agent_layer.infra import batched
from agent_layer.schema import Reward, current_rewards
from agent_layer.store import Filters, Store, TrajectoryRow, read_reward_lists

_PAGE = 256
_NUM_SHOWN = 8
_MIN_VERSION = 4


class RecalledTrajectory(msgspec.Struct, frozen=True, kw_only=True):
    """One recalled trajectory."""

    trajectory_id: str
    run: str | None
    task_id: str | None
    group_id: str | None
    reward_ids: frozenset[str] | None
    """The recalled judgements; None: the trajectory as a whole is recalled, however it was judged."""
    scorers: frozenset[str]
    """Names of the scorers of its recalled judgements that are current; without a recalled scorer, of all current."""

    def was_learned(self, reward_ids: Iterable[str]) -> bool:
        """Whether an update that had these judgements of it learned what is recalled."""
        return self.reward_ids is None or not self.reward_ids.isdisjoint(reward_ids)


def find_recalled(
    store: Store, runs: Iterable[str | None], filters: Filters, scorer: str | None, version: str | None
) -> Iterator[RecalledTrajectory]:
    """Yield the trajectories that pass all conditions, whether or not an update learned from them.

    Args:
        store: where they are.
        runs: of the trajectories; a run of None stands for all.
        filters: without a run.
        scorer: name of a scorer as tasks name it, or of a reward; judgements of people never match. None: any, of the
            version; without a version, trajectories are recalled as a whole.
        version: beginning of the scorer's version (``Reward.verifier_hash``).

    Raises: NotFoundError: there is no such trajectory. The error lists scorers where none of these judged.
    """
    num_found, others = 0, Counter[str]()
    for run in runs:
        for page in batched(store.scan(**filters | Filters(run=run)), _PAGE):
            judgements = read_reward_lists(store.redis, store.keys, [row.trajectory_id for row in page])
            for row, rewards in zip(page, judgements, strict=True):
                if scorer is None and version is None:
                    num_found += 1
                    yield _recall(row, rewards, None)
                    continue
                given = [one for one in rewards if not one.void and one.source != "human"]
                named = [one for one in given if scorer in (None, one.scorer, one.name)]
                ours = [one for one in named if (one.verifier_hash or "").startswith(version or "")]
                if ours:
                    num_found += 1
                    yield _recall(row, rewards, ours)
                others.update({f"{one.scorer or one.name} {one.verifier_hash or '-'}" for one in named or given})
    if not num_found and not others:
        raise NotFoundError(
            "recall: expected trajectories that pass all conditions, found none; check them with 'agent-layer query',"
            " deleted trajectories cannot be recalled"
        )
    if not num_found:
        found = ", ".join(f"{name} ({num:,} trajectories)" for name, num in others.most_common(_NUM_SHOWN))
        wanted = " ".join(one for one in (scorer, version) if one is not None)
        raise NotFoundError(f"recall: expected judgements by {wanted}, found those by {found}; name one of them")


def _recall(row: TrajectoryRow, rewards: Sequence[Reward], judgements: Sequence[Reward] | None) -> RecalledTrajectory:
    standing = current_rewards(rewards)
    wrong = standing if judgements is None else [one for one in standing if one in judgements]
    return RecalledTrajectory(
        trajectory_id=row.trajectory_id,
        run=row.run,
        task_id=row.task_id,
        group_id=row.group_id,
        reward_ids=None if judgements is None else frozenset(one.reward_id for one in judgements),
        scorers=frozenset(one.scorer for one in wrong if one.scorer is not None),
    )


def check_condition(filters: Filters, scorer: str | None, version: str | None) -> None:
    """Check that something is recalled.

    Raises: BadInputError: there is no condition, or the version is too short.
    """
    if version is not None and len(version) < _MIN_VERSION:
        raise BadInputError(
            f"recall: expected at least {_MIN_VERSION} characters of a version, found {version!r}; 'agent-layer show'"
            " prints it as verifier_hash"
        )
    if scorer is None and version is None and all(value in (None, {}) for value in filters.values()):
        raise BadInputError(
            "recall: expected a scorer or a filter, found neither, which would recall everything; give --scorer NAME,"
            " --task, --label, --engine or another"
        )
