"""Every Redis key of a namespace. They share one hash tag, so a Redis Cluster keeps them in one slot."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Keys:
    """Names of the keys of one namespace; ARCHITECTURE.md says what each holds."""

    namespace: str

    def name(self, *parts: str | int) -> str:
        """Join parts into a key of this namespace."""
        return ":".join((f"al:{{{self.namespace}}}", *map(str, parts)))

    # -- index: rebuilt from segments -------------------------------------------------------------
    def trajectory(self, trajectory_id: str) -> str:
        """Hash: what a query row shows, and the trajectory's ordinal."""
        return self.name("t", trajectory_id)

    def chunks(self, trajectory_id: str) -> str:
        """Hash: segment name → 'offset size_bytes'."""
        return self.name("t", trajectory_id, "chunks")

    def calls(self, trajectory_id: str) -> str:
        """Hash: call id → 'told num_choices'; recorded by the gateway: 1 its start, 2 its end, 3 both, 0 neither."""
        return self.name("t", trajectory_id, "calls")

    def rewards(self, trajectory_id: str) -> str:
        """Hash: reward id → encoded Reward, of those that may decide the reward of the rollout."""
        return self.name("t", trajectory_id, "rewards")

    def part_rewards(self, trajectory_id: str) -> str:
        """Hash: reward id → encoded Reward of a step or an agent."""
        return self.name("t", trajectory_id, "part-rewards")

    def reward_topics(self, trajectory_id: str) -> str:
        """Sorted set: topic and id of each reward of a step or an agent, in alphabetical order."""
        return self.name("t", trajectory_id, "topics")

    def trajectory_blobs(self, trajectory_id: str) -> str:
        """Hash: name of each blob that it needs → 1 when a committed segment says so, 0 while that is on its way."""
        return self.name("t", trajectory_id, "blobs")

    def in_block(self, block: int, name: str) -> str:
        """String: a bitmap of the members of a block that the name describes, or a column of float64s."""
        return self.name("b", block, name)

    def blocks_with(self, name: str) -> str:
        """String: bitmap of the blocks with at least one member that the name describes."""
        return self.name("v", name)

    def values(self, field: str) -> str:
        """Set: all values of a field that trajectories are counted by."""
        return self.name("values", field)

    @property
    def zones(self) -> str:
        """Hash: block → least and greatest value of each of its columns."""
        return self.name("zones")

    @property
    def segments(self) -> str:
        """Hash: name of each committed segment → its size in bytes."""
        return self.name("segments")

    @property
    def quarantine(self) -> str:
        """Hash: name of each segment with unreadable bytes → why."""
        return self.name("quarantine")

    @property
    def dead(self) -> str:
        """Hash: SHA-1 of each deleted owner → time of its deletion."""
        return self.name("dead")

    @property
    def rewrite(self) -> str:
        """Set: names of segments that hold bytes of something deleted, or that another segment replaces."""
        return self.name("rewrite")

    def replaced(self, segment: str) -> str:
        """String, for a day: segment that this one was merged into; empty if all of its records were deleted."""
        return self.name("replaced", segment)

    def policies(self, run: str) -> str:
        """Hash: number → encoded PolicyVersion."""
        return self.name("policies", run)

    def batches(self, run: str) -> str:
        """Hash: batch id → encoded TrainedBatch."""
        return self.name("batches", run)

    @property
    def batch_segments(self) -> str:
        """Hash: 'run:step' → names of the segments that hold what it learned from, sorted, with spaces between."""
        return self.name("batch-segments")

    @property
    def runs(self) -> str:
        """Set of all run names."""
        return self.name("runs")

    def group(self, group_id: str) -> str:
        """String: encoded Group, once it is closed."""
        return self.name("group", group_id)

    def accepted(self, group_id: str) -> str:
        """Hash: rollout → its accepted attempt, until the group's record is stored."""
        return self.name("group", f"{group_id}/accepted")

    def closed_groups(self, run: str) -> str:
        """Sorted set of closed group ids by the time of their closing."""
        return self.name("groups", run)

    @property
    def group_segments(self) -> str:
        """Hash: group id → names of the segments that hold its record, sorted, with spaces between."""
        return self.name("group-segments")

    @property
    def events(self) -> str:
        """Stream of state changes, trimmed; blocked readers wake on it."""
        return self.name("events")

    @property
    def steps(self) -> str:
        """Stream of running trajectories that got steps, one entry per commit, trimmed; the page wakes on it."""
        return self.name("steps")

    # -- shared state: only in Redis, kept by its append-only file ---------------------------------------------
    @property
    def clock(self) -> str:
        """String: the shared time in ms, somewhat behind it; see ``SharedClock``."""
        return self.name("clock")

    @property
    def ordinals(self) -> str:
        """String: the next ordinal."""
        return self.name("ordinals")

    @property
    def reindexing(self) -> str:
        """Hash: progress of a rebuild that has not ended."""
        return self.name("reindexing")

    @property
    def cooled(self) -> str:
        """Set: runs whose index ``store cool`` removed, until it is rebuilt."""
        return self.name("cooled")

    @property
    def blobs(self) -> str:
        """Hash: content hash → 'name 1' of the blob that holds it; 0 while it may not be stored yet."""
        return self.name("blobs")

    def blob(self, name: str) -> str:
        """Set: trajectories that need a blob."""
        return self.name("blob", name)

    @property
    def unneeded(self) -> str:
        """Set: names of blobs that no trajectory needs any more, to be removed."""
        return self.name("unneeded")

    @property
    def compacting(self) -> str:
        """String: holder of the lock for compaction and garbage collection; expires."""
        return self.name("compacting")

    @property
    def merging(self) -> str:
        """Set: names of segments that others are being merged into, until they are committed."""
        return self.name("merging")

    def acked(self, run: str, consumer: str) -> str:
        """Set: ids of groups that this consumer has acknowledged."""
        return self.name("acked", run, consumer)

    def trainer(self, run: str) -> str:
        """String, for a minute: directory and host of the run's trainer."""
        return self.name("trainer", run)

    def feeds(self, run: str) -> str:
        """Hash: consumer:split → 'closed_at group', the position of that consumer in the closed groups."""
        return self.name("feeds", run)

    def claims(self, run: str, consumer: str, split: str, *part: str) -> str:
        """What a consumer's members hold: ('waiting'), ('members'), ('sessions'), ('turns'), ('held', member)."""
        return self.name("claims", run, consumer, split, *part)

    def judged(self, trajectory_id: str, reward_id: str) -> str:
        """String, for a day: the first reward with this id; repeated calls return it."""
        return self.name("judged", trajectory_id, reward_id.replace(":", "/"))  # or two pairs could share a key

    def exported(self, consumer: str) -> str:
        """String: id of the newest event whose trajectory this consumer has sent elsewhere."""
        return self.name("exported", consumer)

    @property
    def outbox(self) -> str:
        """Stream of decisions of the dispatcher that are not in a segment yet."""
        return self.name("outbox")

    @property
    def outbox_batch(self) -> str:
        """Hash: number of the oldest decisions that are being written to a segment."""
        return self.name("outbox-batch")

    def queue(self, *parts: str | int) -> str:
        """Keys of the dispatcher."""
        return self.name("q", *parts)

    @property
    def synced(self) -> str:
        """String: written before each wait for the disk, to be found there; its value means nothing."""
        return self.name("synced")

    def engine(self, url: str) -> str:
        """Hash: state, version, location, run, epoch of one inference engine."""
        return self.name("engine", url)

    @property
    def engines(self) -> str:
        """Set of engine addresses."""
        return self.name("engines")

    @property
    def engines_left(self) -> str:
        """Sorted set: address of each engine that left in the last week → the revision of its entry then."""
        return self.name("engines-left")

    @property
    def engine_keys(self) -> str:
        """Hash: address of each engine that asks for a key → that key. Who only watches engines may not read it."""
        return self.name("engine-keys")

    @property
    def engine_events(self) -> str:
        """Stream that wakes gateways when an engine changes its state."""
        return self.name("engine-events")

    @property
    def gateways(self) -> str:
        """Sorted set: gateway id → time of its last heartbeat, in seconds of ``SharedClock``."""
        return self.name("gateways")

    @property
    def operator_key(self) -> str:
        """String: salt and digest by which the operator's key of the gateways is recognised."""
        return self.name("operator-key")

    @property
    def data_loss(self) -> str:
        """String, for a day: when it was noticed last that Redis had lost data."""
        return self.name("data-loss")

    @property
    def pages(self) -> str:
        """Sorted set: 'host address' of each page that serves the namespace → ``SharedClock`` at its last renewal."""
        return self.name("pages")
