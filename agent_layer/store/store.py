"""The store as its readers see it: one object that answers questions about trajectories."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, SupportsFloat, Unpack, cast

from redis import Redis

from agent_layer.errors import BadInputError, CorruptRecordError
from agent_layer.infra import Keys, ObjectStore, open_objects, open_redis
from agent_layer.schema import Label, LogRecord, Reward, Split, Step, Trajectory, content_hash, new_id, reward_topic
from agent_layer.settings import Settings, load_settings
from agent_layer.state import TokenBytes, read_vocabulary
from agent_layer.store.admin import StoreAdmin
from agent_layer.store.consumers.claims import ONLY_MEMBER, Consumer, acknowledge
from agent_layer.store.consumers.follower import MAX_UNACKED, AckedGroups, Follower, FollowOptions, GroupDelivery
from agent_layer.store.index.aggregate import Summary, SummaryField, count_trajectories, summarise_trajectories
from agent_layer.store.index.filters import Filters
from agent_layer.store.index.index import Index
from agent_layer.store.index.plan import Order
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.index.search import Explanation, explain_search, scan_trajectories
from agent_layer.store.maintenance.deletion import DeletionReport
from agent_layer.store.maintenance.rebuild import Progress
from agent_layer.store.page import Page, read_page
from agent_layer.store.reading.labels import LabelOptions, make_label, read_known_labels
from agent_layer.store.reading.reader import (
    pick_step,
    read_trajectories,
    stream_steps,
    stream_trajectories,
    trajectory_not_found,
)
from agent_layer.store.reading.rewards import (
    RewardOptions,
    commit_reward,
    make_reward,
    read_topic_rewards,
    supersede_current,
)
from agent_layer.store.reading.tokens import StepTokens, read_step_tokens
from agent_layer.store.segments.blobs import Contents, fetch_contents, read_blob
from agent_layer.store.text.text_index import TextIndex, TextPage
from agent_layer.store.writer import StoreWriter

if TYPE_CHECKING:
    import pyarrow


def open_store(settings: Settings | None = None) -> "Store":
    """Open the store that the settings name; None reads them from the environment.

    Raises: UnreachableError: Redis or the object store does not answer.
    """
    settings = settings or load_settings()
    return Store(settings, open_redis(settings), open_objects(settings))


class Store:
    """Reads trajectories: the index finds them, the objects hold their bytes; ``writer`` appends later judgements."""

    def __init__(self, settings: Settings, redis: Redis, objects: ObjectStore) -> None:
        self.redis = redis
        self.keys = Keys(settings.namespace)
        self.objects = objects
        self._settings = settings
        self._index = Index(redis, self.keys)
        self.writer = StoreWriter(settings)
        self._followers: dict[Consumer, Follower] = {}
        self._acked: defaultdict[tuple[str, str], AckedGroups] = defaultdict(AckedGroups)
        """By consumer and run."""
        self._vocabularies: dict[str, TokenBytes] = {}

    @property
    def admin(self) -> StoreAdmin:
        """Maintenance: ``store.admin.compact()``, ``check()``, ``reindex()`` and others."""
        return StoreAdmin(self._index, self.objects)

    def query(
        self,
        *,
        order: Order = "newest",
        limit: int | None = None,
        cursor: str | None = None,
        **filters: Unpack[Filters],
    ) -> Page:
        """Return a page of the trajectories that pass the filters: run, split, task, task_type, input_hash, env,
        env_version, status, cause, agent, tool, finding, engine, labels, accepted, step, policy, reward, since, until.

        Args:
            order: of the rows.
            limit: rows of the page, and of its tables. None: ``items`` has 32, and ``to_reader``, ``to_arrow`` and
                ``to_pandas`` have all rows of the answer.
            cursor: of the page before.
            filters: all of them must hold.

        Raises: BadInputError: a filter, the order, the limit or the cursor is not valid.
        """
        return read_page(self._index, filters, order, limit, cursor)

    def scan(self, **filters: Unpack[Filters]) -> Iterator[TrajectoryRow]:
        """Yield all trajectories that pass the filters, oldest first, a page at a time; raises what ``query`` does."""
        return scan_trajectories(self._index, filters)

    def count(self, **filters: Unpack[Filters]) -> int:
        """Count the trajectories that pass the filters; raises what ``query`` does."""
        return count_trajectories(self._index, filters)

    def summarise(
        self, by: Sequence[SummaryField] = (), *, success: float = 1.0, **filters: Unpack[Filters]
    ) -> list[Summary]:
        """Count trajectories and average their rewards, grouped by fields such as task type and policy.

        Args:
            by: among run, split, task, task_type, env, env_version, status, cause, agent, tool, finding, engine,
                policy.
            success: least reward of a success.
            filters: what ``query`` takes.

        Raises: BadInputError: a field or filter is not valid, or there would be too many lines.
        """
        return summarise_trajectories(self._index, by, filters, success)

    def explain(self, *, order: Order = "newest", limit: int = 32, **filters: Unpack[Filters]) -> Explanation:
        """Explain how ``query`` finds its answer: the leading condition, the part of the index read, the time taken."""
        return explain_search(self._index, filters, order, limit)

    @property
    def texts(self) -> TextIndex:
        """The index of texts on this machine, in a file that may be deleted at any time."""
        place = content_hash(str(self._settings.objects_url or self._settings.dir.absolute()).encode())[:8]
        path = self._settings.dir / "text" / f"{self.keys.namespace}-{place}.sqlite"
        return TextIndex(self._index, self.objects, path, self._settings.text_index_bytes)

    def search_text(
        self,
        text: str,
        *,
        limit: int = 32,
        cursor: str | None = None,
        seconds: float | None = None,
        progress: Progress | None = None,
        **filters: Unpack[Filters],
    ) -> TextPage:
        """Find the newest texts inside trajectories in which all words occur: tasks, messages, answers, observations.

        The first search on a machine reads all segments, later ones those that are new; ``coverage`` tells what is left
        out. Never searched: ``grading``, rewards, outcomes, judges, tools on offer, contents in blobs.

        Args:
            text: words; "with quotes" a phrase, a beginning of a word with a star.
            limit: trajectories.
            cursor: of the page before.
            seconds: time for bringing the text index up to date; None: as long as it takes.
            progress: of that.
            filters: what ``query`` takes.

        Raises:
            BadInputError: there is no word, or a filter, limit or cursor is not valid.
            UnreachableError: the file of the text index cannot be used.
        """
        self.texts.update(seconds=seconds, progress=progress)
        return self.texts.search(text, limit=limit, cursor=cursor, filters=filters)

    def row(self, trajectory_id: str) -> TrajectoryRow:
        """Return what the index knows of one trajectory.

        Raises: NotFoundError: it knows nothing.
        """
        for row in self._index.rows([trajectory_id]):
            return row
        raise trajectory_not_found(trajectory_id, self.keys.namespace)

    def get(self, trajectory_id: str, *, blobs: bool = True) -> Trajectory:
        """Read a whole trajectory: steps, observations, rewards, contents.

        Args:
            trajectory_id: which one.
            blobs: also fetch large contents and media; ``contents`` fetches them later, one by one.

        Raises:
            NotFoundError: there is none of this id, or a blob is gone.
            CorruptRecordError: stored bytes do not match their checksum.
        """
        trajectory = read_trajectories(self._index, self.objects, [trajectory_id])[0]
        return fetch_contents(self.keys, self.objects, trajectory) if blobs else trajectory

    def contents(self, trajectory: Trajectory) -> Mapping[str, bytes]:
        """Return its messages, tools, states and media by hash, as JSON text; blobs are fetched when they are read.

        Reading one raises NotFoundError when its blob is gone, CorruptRecordError when it does not match its name.
        """
        return Contents(trajectory, partial(read_blob, self.keys, self.objects))

    def step(self, trajectory_id: str, step: int) -> Step:
        """Read one step with its whole prompt; raises what ``get`` does, or NotFoundError for the step."""
        return pick_step(self.get(trajectory_id, blobs=False), step)

    def step_tokens(self, trajectory: Trajectory, step: int) -> StepTokens:
        """Return the tokens that a step sampled: bytes, the engine's numbers, and what its last update computed.

        Raises: NotFoundError: there is no such step. CorruptRecordError: the stored vocabulary is damaged.
        """
        found = pick_step(trajectory, step)
        return read_step_tokens(trajectory, found, self._vocabulary(found.tokenizer_hash))

    def _vocabulary(self, tokenizer_hash: str | None) -> TokenBytes | None:
        """Return a vocabulary, which is kept once it was read; None: not known or not stored."""
        if tokenizer_hash is None:
            return None
        if (known := self._vocabularies.get(tokenizer_hash)) is None:
            known = read_vocabulary(self.keys, self.objects, tokenizer_hash)
            if known is not None:
                self._vocabularies[tokenizer_hash] = known
        return known

    def read(
        self,
        rows: Iterable[TrajectoryRow],
        *,
        contents: bool = True,
        on_corrupt: Callable[[CorruptRecordError], None] | None = None,
    ) -> Iterator[tuple[TrajectoryRow, Trajectory]]:
        """Read the trajectories of rows, a few ahead, in constant memory; see ``stream_trajectories``."""
        return stream_trajectories(self._index, self.objects, rows, contents=contents, on_corrupt=on_corrupt)

    def iter_steps(self, **filters: Unpack[Filters]) -> Iterator[Step]:
        """Yield the steps of all trajectories that pass the filters, oldest first, in constant memory.

        With ``step=`` only that step of each. Messages and other contents are not read: ``state`` has their hashes.
        """
        for _, steps in stream_steps(self.read(self.scan(**filters), contents=False), filters.get("step")):
            yield from steps

    def steps(
        self, *, columns: Sequence[str] | None = None, contents: bool = False, **filters: Unpack[Filters]
    ) -> "pyarrow.RecordBatchReader":
        """Return the same steps as a stream of Arrow batches; ``read_all()`` makes a table, DuckDB reads it directly.

        Args:
            columns: among ``STEP_COLUMNS`` of ``agent_layer.store.arrow``; None: all.
            contents: also read messages, tools and framework states; otherwise their columns are null.
            filters: see ``query``.

        Raises: BadInputError: there is no such column, or the extra ``arrow`` is not installed.
        """
        from agent_layer.store.arrow.stream import tabulate_stream  # noqa: PLC0415  # comes with an extra

        found = stream_steps(self.read(self.scan(**filters), contents=contents), filters.get("step"))
        return tabulate_stream(found, columns=columns, contents=contents)

    def follow(
        self, consumer: str, run: str, split: Split | None = "train", **how: Unpack[FollowOptions]
    ) -> Iterator[GroupDelivery]:
        """Yield whole groups in the order in which they closed, first those that this consumer has not acknowledged.

        The only process of a consumer keeps the default ``member``: after a restart, it receives at once what it had
        not acknowledged. Processes that share a consumer each have a ``member`` name, or 'auto'. A group goes to one of
        them; if that one dies, to another after ``claim_seconds`` (a setting).

        Args:
            consumer: name under which acknowledgements are stored.
            run: run of the groups.
            split: None yields both.
            **how: fields of ``FollowOptions``: wait_seconds (None), stop, member, max_unacked (1,024), wanted.

        Raises:
            BackPressureError: after ``wait_seconds``, ``max_unacked`` groups are still not acknowledged.
            LeaseLostError: another process has begun to follow as the same member.
        """
        if self.redis.xlen(self.keys.outbox):  # their decider may have died, and all shippers with it
            self.writer.ship_decisions()
        member, most = how.get("member", ONLY_MEMBER), how.get("max_unacked", MAX_UNACKED)
        if most is not None and most < 1:
            raise BadInputError(f"max_unacked {most}: expected at least 1, or None for any number; correct it")
        if member == "auto":
            member = f"{self._settings.host}-{new_id()}"
        follower = self._follower(Consumer(consumer, run, split, member))
        stop, wanted = how.get("stop", lambda: False), how.get("wanted", lambda: "")
        return follower.follow(how.get("wait_seconds"), stop, most, wanted)

    def read_groups(
        self,
        consumer: str,
        run: str,
        limit: int | None = None,
        split: Split | None = "train",
        member: str = ONLY_MEMBER,
    ) -> list[GroupDelivery]:
        """Return groups that are ready now and that this object has not returned to the consumer before.

        Raises: LeaseLostError: another process, or ``follow``, has begun to follow as the same member.
        """
        key = Consumer(consumer, run, split, member)
        if key not in self._followers:
            self._followers[key] = self._follower(key)
        return list(islice(self._followers[key].take(), limit))

    def acknowledge(self, consumer: str, run: str, group_ids: Sequence[str]) -> None:
        """Acknowledge groups: no member of the consumer receives them again. Idempotent."""
        acknowledge(self.redis, self.keys, Consumer(consumer, run), group_ids)
        self._acked[consumer, run].note(group_ids)

    def find_acknowledged(self, consumer: str, run: str, group_ids: Sequence[str]) -> list[str]:
        """Return those of the groups that the consumer has acknowledged, as far as Redis knows."""
        key = self.keys.acked(run, consumer)
        found = self.redis.smismember(key, list(group_ids)) if group_ids else []  # pyright: ignore[reportUnknownMemberType]  # untyped
        return [group_id for group_id, is_acked in zip(group_ids, cast("list[int]", found), strict=True) if is_acked]

    def _follower(self, consumer: Consumer) -> Follower:
        acked = self._acked[consumer.name, consumer.run]
        return Follower(self._index, self.objects, consumer, self._settings.claim_seconds, acked)

    def reward(self, trajectory_id: str, score: SupportsFloat | None, **options: Unpack[RewardOptions]) -> Reward:
        """Append a judgement to a stored trajectory; it counts once it is shipped. Nothing is overwritten.

        Args:
            trajectory_id: what is judged.
            score: a number of any type; None withdraws a judgement without another in its place.
            options: name, source, step or agent, comment, reward_id; see RewardOptions.

        Returns: the judgement; for a reward_id that is known already, the earlier one.

        Raises:
            NotFoundError: there is no such trajectory.
            BadInputError: the score is not finite, or there is no such step or agent.
        """
        reward = make_reward(self.row(trajectory_id), score, options, self._settings.run)
        known = read_topic_rewards(self.redis, self.keys, trajectory_id, reward_topic(reward), reward.reward_id)
        if stored := [one for one in known if one.reward_id == reward.reward_id]:
            return stored[0]
        reward = supersede_current(reward, known)
        if options.get("reward_id") is None:
            self.append(reward)
            return reward
        agreed = commit_reward(self.redis, self.keys, reward)
        self.append(agreed)
        return agreed

    def label(self, trajectory_id: str, *, name: str, value: str | None, **options: Unpack[LabelOptions]) -> Label:
        """Label a stored trajectory; ``query`` finds it so once the label is shipped. Nothing is overwritten.

        Args:
            trajectory_id: what is labelled.
            name: up to 128 characters without '='.
            value: up to 256 characters; supersedes that of its task, and those given earlier. None withdraws it.
            options: source, comment; see LabelOptions.

        Raises:
            NotFoundError: there is no such trajectory.
            BadInputError: name or value cannot be a label's, or there is none of this name to withdraw.
        """
        known = read_known_labels(self.redis, self.keys, trajectory_id)
        label = make_label(self.row(trajectory_id), name, value, options, known, self._settings.run)
        self.append(label)
        return label

    def append(self, *records: LogRecord) -> None:
        """Append records that became known later; see ``StoreWriter.append``."""
        self.writer.append(*records)

    def delete(
        self,
        trajectory_id: str | None = None,
        *,
        dry_run: bool = False,
        purge: bool = True,
        progress: Progress | None = None,
        **filters: Unpack[Filters],
    ) -> DeletionReport:
        """Delete one trajectory, or all that pass the filters (``task="t1"``, ``labels={"user": "u7"}``), for ever.

        When this returns, no search finds them, neither a rebuild nor a replayed log restores them, and no object holds
        a byte of them. A group keeps its other members. The module ``maintenance.deletion`` describes attempts that
        still run, and logs on other machines.

        Args:
            trajectory_id: the one to delete; leave it out to give filters.
            dry_run: change nothing, only report what would go.
            purge: rewrite the segments that hold their bytes; otherwise the next compaction does.
            progress: of the rewriting.
            filters: what ``query`` takes.

        Raises:
            BadInputError: no condition is given, or one that is not valid; or the index is being rebuilt.
            NotFoundError: there never was a trajectory of this id.
            LeaseLostError: another process compacts; all but the bytes is deleted, delete again.
        """
        report = self.admin.delete(trajectory_id, dry_run=dry_run, purge=purge, progress=progress, **filters)
        if not dry_run:
            self.texts.forget_deleted()
        return report
