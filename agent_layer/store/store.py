"""This file holds the store as its readers see it: one object that answers questions about trajectories."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Unpack

from redis import Redis

from agent_layer.errors import BadInputError, CorruptRecordError
from agent_layer.infra.objects import ObjectStore, open_objects
from agent_layer.infra.redis import Keys, open_redis
from agent_layer.recorder import ensure_shipper, open_recorder
from agent_layer.schema import LogRecord, Reward, Split, Step, Trajectory, new_id
from agent_layer.settings import Settings, load_settings
from agent_layer.store.admin import StoreCare
from agent_layer.store.consumers import (
    MAX_UNACKED,
    ONLY_MEMBER,
    Consumer,
    Follower,
    Following,
    GroupDelivery,
    acknowledge,
)
from agent_layer.store.index import (
    By,
    Explanation,
    Filters,
    Order,
    Page,
    Summary,
    TrajectoryRow,
    count_trajectories,
    explain_search,
    find_trajectories,
    scan_trajectories,
    summarise_trajectories,
)
from agent_layer.store.reading import (
    RewardOptions,
    agree,
    make_reward,
    not_found,
    pick_step,
    read_rewards,
    read_trajectories,
    stream_steps,
    stream_trajectories,
)
from agent_layer.store.segments import Contents, fill_in, read_blob

if TYPE_CHECKING:
    import pyarrow


class Store(StoreCare):
    """Reads trajectories: the index says which and where, the objects give their bytes."""

    def __init__(self, settings: Settings, redis: Redis, objects: ObjectStore) -> None:
        super().__init__(redis, Keys(settings.namespace), objects)
        self._settings = settings
        self._followers: dict[Consumer, Follower] = {}

    def query(
        self, *, order: Order = "newest", limit: int = 32, cursor: str | None = None, **filters: Unpack[Filters]
    ) -> Page:
        """Find trajectories by what ``Filters`` names: run, split, task, task_type, input_hash, env, env_version,
        status, cause, agent, tool, labels, accepted, step, policy, reward, since, until.

        Raises: BadInputError: a filter, the order, the limit or the cursor is not one that can be asked for.
        """
        return find_trajectories(self._index, filters, order, limit, cursor)

    def scan(self, **filters: Unpack[Filters]) -> Iterator[TrajectoryRow]:
        """Give all trajectories that pass the filters, oldest first, a page at a time; raises what ``query`` does."""
        return scan_trajectories(self._index, filters)

    def count(self, **filters: Unpack[Filters]) -> int:
        """Count the trajectories that pass the filters; raises what ``query`` does."""
        return count_trajectories(self._index, filters)

    def summarise(self, by: Sequence[By] = (), *, success: float = 1.0, **filters: Unpack[Filters]) -> list[Summary]:
        """Count trajectories and average their rewards by what they have in common, such as task type and policy.

        Args:
            by: among run, split, task_type, env, env_version, status, cause, agent, tool, policy.
            success: least reward of a success.
            filters: what ``query`` takes.

        Raises: BadInputError: a field or filter is not one that can be asked for, or there would be too many lines.
        """
        return summarise_trajectories(self._index, by, filters, success)

    def explain(self, *, order: Order = "newest", limit: int = 32, **filters: Unpack[Filters]) -> Explanation:
        """Tell how ``query`` finds its answer: which condition leads, how much of the index it looks at, how long."""
        return explain_search(self._index, filters, order, limit)

    def read(
        self,
        rows: Iterable[TrajectoryRow],
        *,
        contents: bool = True,
        on_corrupt: Callable[[CorruptRecordError], None] | None = None,
    ) -> Iterator[tuple[TrajectoryRow, Trajectory]]:
        """Read the trajectories of rows, a few ahead, in constant memory; see ``streaming.stream_trajectories``."""
        return stream_trajectories(self._index, self.objects, rows, contents=contents, on_corrupt=on_corrupt)

    def iter_steps(self, **filters: Unpack[Filters]) -> Iterator[Step]:
        """Give the steps of all trajectories that pass the filters, oldest first, in constant memory.

        With ``step=`` only those of each. Messages and other contents are not read: ``state`` has their hashes.
        """
        for _, steps in stream_steps(self.read(self.scan(**filters), contents=False), filters.get("step")):
            yield from steps

    def steps(
        self, *, columns: Sequence[str] | None = None, contents: bool = False, **filters: Unpack[Filters]
    ) -> "pyarrow.RecordBatchReader":
        """Give the same steps as a stream of Arrow batches; ``read_all()`` makes a table of it, DuckDB reads it as is.

        Args:
            columns: of ``tables.steps.STEP_COLUMNS``; None: all.
            contents: also read messages, tools and framework states; else their columns are null.
            filters: see ``query``.

        Raises: BadInputError: there is no such column, or the extra ``arrow`` is not installed.
        """
        from agent_layer.store.arrow import tabulate_stream  # noqa: PLC0415  # comes with an extra

        found = stream_steps(self.read(self.scan(**filters), contents=contents), filters.get("step"))
        return tabulate_stream(found, columns=columns, contents=contents)

    def row(self, trajectory_id: str) -> TrajectoryRow:
        """What the index knows of one trajectory.

        Raises: NotFoundError: nothing.
        """
        for row in self._index.rows([trajectory_id]):
            return row
        raise not_found(trajectory_id, self.keys.namespace)

    def get(self, trajectory_id: str, *, blobs: bool = True) -> Trajectory:
        """Read a trajectory whole: steps, observations, rewards, contents.

        Args:
            trajectory_id: which one.
            blobs: also fetch large contents and media; ``contents`` does so later, one by one.

        Raises:
            NotFoundError: there is none of this id, or a blob is gone.
            CorruptRecordError: stored bytes are not what their checksum says.
        """
        trajectory = read_trajectories(self._index, self.objects, [trajectory_id])[0]
        return fill_in(self.keys, self.objects, trajectory) if blobs else trajectory

    def contents(self, trajectory: Trajectory) -> Mapping[str, bytes]:
        """All its messages, tools, states and media by hash, as JSON text; those in blobs are fetched when read.

        Reading one raises NotFoundError when its blob is gone, CorruptRecordError when it is not what its name says.
        """
        return Contents(trajectory, partial(read_blob, self.keys, self.objects))

    def step(self, trajectory_id: str, step: int) -> Step:
        """Read one step, its whole prompt filled in; raises what ``get`` does, or NotFoundError for the step."""
        return pick_step(self.get(trajectory_id, blobs=False), step)

    def follow(
        self, consumer: str, run: str, split: Split | None = "train", **how: Unpack[Following]
    ) -> Iterator[GroupDelivery]:
        """Give whole groups in order of closing, those first that this consumer did not acknowledge before.

        A process that is the consumer's only one keeps the default ``member``: started again, it gets back at once what
        it had not acknowledged. Processes that share a consumer have a ``member`` name each, or 'auto'; a group goes to
        one of them, and to another one when that dies, ``claim_seconds`` (a setting) later.

        Args:
            consumer: the name under which acknowledgements are remembered.
            run: whose groups.
            split: ``None`` gives both.
            **how: what ``Following`` names: wait_seconds (None), stop, member, max_unacked (1,024).

        Raises:
            BackPressureError: after ``wait_seconds``, when ``max_unacked`` groups are still not acknowledged.
            LeaseLostError: another process has begun to follow as the same member.
        """
        if self.redis.xlen(self.keys.outbox):  # whoever decided may have died, and all shippers with it
            ensure_shipper(self._settings)
        member, most = how.get("member", ONLY_MEMBER), how.get("max_unacked", MAX_UNACKED)
        if most is not None and most < 1:
            raise BadInputError(f"max_unacked {most}: expected at least 1, or None for any number; correct it")
        if member == "auto":
            member = f"{self._settings.host}-{new_id()}"
        follower = self._follower(Consumer(consumer, run, split, member))
        return follower.follow(how.get("wait_seconds"), how.get("stop", lambda: False), most)

    def read_groups(
        self,
        consumer: str,
        run: str,
        limit: int | None = None,
        split: Split | None = "train",
        member: str = ONLY_MEMBER,
    ) -> list[GroupDelivery]:
        """Give groups that are ready now and that this store object did not give to the consumer before.

        Raises: LeaseLostError: somebody else, or ``follow``, has begun to follow as the same member.
        """
        key = Consumer(consumer, run, split, member)
        if key not in self._followers:
            self._followers[key] = self._follower(key)
        return list(islice(self._followers[key].take(), limit))

    def acknowledge(self, consumer: str, run: str, group_ids: Sequence[str]) -> None:
        """Say that these groups need never come to the consumer again, whoever holds them; twice does no harm."""
        acknowledge(self.redis, self.keys, Consumer(consumer, run), group_ids)

    def _follower(self, consumer: Consumer) -> Follower:
        return Follower(self._index, self.objects, consumer, self._settings.claim_seconds)

    def reward(self, trajectory_id: str, score: float | None, **options: Unpack[RewardOptions]) -> Reward:
        """Append a judgement to a stored trajectory; it counts as soon as it is shipped, and nothing is overwritten.

        Args:
            trajectory_id: what is judged.
            score: None takes back what was judged, without another judgement in its place.
            options: name, source, step or agent, comment, reward_id; see RewardOptions.

        Returns: the judgement; for a reward_id that was said before, that of then.

        Raises:
            NotFoundError: there is no such trajectory.
            BadInputError: the score is not finite, or there is no such step or agent.
        """
        known = read_rewards(self.redis, self.keys, trajectory_id)
        reward = make_reward(self.row(trajectory_id), score, options, known, self._settings.run)
        if options.get("reward_id") is None:
            self.append(reward)
            return reward
        if stored := [one for one in known if one.reward_id == reward.reward_id]:
            return stored[0]
        agreed = agree(self.redis, self.keys, reward)
        self.append(agreed)
        return agreed

    def append(self, *records: LogRecord) -> None:
        """Record what became known later, all of it or nothing; it is found as soon as it is shipped.

        Raises: BackPressureError: disk or quota stayed full.
        """
        open_recorder(self._settings).append(*records)


def open_store(settings: Settings | None = None) -> Store:
    """Open the store that the settings (None: those of the environment) name.

    Raises: UnreachableError: Redis or the object store does not answer.
    """
    settings = settings or load_settings()
    return Store(settings, open_redis(settings), open_objects(settings))
