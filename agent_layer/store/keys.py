"""This file holds every Redis key of a namespace. One hash tag holds them all in one slot of a Redis Cluster."""

from dataclasses import dataclass

__all__ = ["Keys"]


@dataclass(frozen=True)
class Keys:
    """Names of the keys of one namespace; ARCHITECTURE.md says what each holds."""

    namespace: str

    def name(self, *parts: str | int) -> str:
        """Join parts into a key of this namespace."""
        return ":".join((f"al:{{{self.namespace}}}", *map(str, parts)))

    # -- index: rebuilt from segments -------------------------------------------------------------
    def trajectory(self, trajectory_id: str) -> str:
        """Hash: what a query row shows."""
        return self.name("t", trajectory_id)

    def chunks(self, trajectory_id: str) -> str:
        """Hash: segment key → 'offset size_bytes'."""
        return self.name("t", trajectory_id, "chunks")

    def calls(self, trajectory_id: str) -> str:
        """Hash: call id → 'told num_choices'; told by the gateway: 1 its start, 2 its end, 3 both, 0 neither."""
        return self.name("t", trajectory_id, "calls")

    def rewards(self, trajectory_id: str) -> str:
        """Hash: reward id → encoded Reward."""
        return self.name("t", trajectory_id, "rewards")

    def by(self, index: str, value: str | int = "") -> str:
        """Sorted set of trajectory ids.

        Scored by start time: ('all'), ('run', R), ('task', T), ('type', T), ('split', S), ('status', S), ('accepted').
        Scored by their own value: ('reward'), ('policy_min'), ('policy_max').
        """
        return self.name("ix", index, value) if value != "" else self.name("ix", index)

    @property
    def segments(self) -> str:
        """Hash: key of each committed segment → its size in bytes."""
        return self.name("segments")

    def policies(self, run: str) -> str:
        """Hash: number → encoded PolicyVersion."""
        return self.name("policies", run)

    def batches(self, run: str) -> str:
        """Hash: batch id → encoded TrainedBatch."""
        return self.name("batches", run)

    @property
    def runs(self) -> str:
        """Set of all run names."""
        return self.name("runs")

    def group(self, group_id: str) -> str:
        """String: encoded Group, once it is closed."""
        return self.name("group", group_id)

    def closed_groups(self, run: str) -> str:
        """Sorted set of closed group ids by the time of their closing."""
        return self.name("groups", run)

    @property
    def events(self) -> str:
        """Stream of state changes, trimmed; for whoever wants to be woken."""
        return self.name("events")

    # -- shared state: lives in Redis only, AOF keeps it ---------------------------------------------
    def acked(self, run: str, consumer: str) -> str:
        """Set of group ids that this consumer has acknowledged."""
        return self.name("acked", run, consumer)

    def exported(self, consumer: str) -> str:
        """String: id of the newest event whose trajectory this consumer has sent elsewhere."""
        return self.name("exported", consumer)

    @property
    def outbox(self) -> str:
        """Stream of decisions of the dispatcher that are not in a segment yet."""
        return self.name("outbox")

    def queue(self, *parts: str | int) -> str:
        """Keys of the dispatcher."""
        return self.name("q", *parts)

    def engine(self, url: str) -> str:
        """Hash: state, version, location, run, epoch of one inference engine."""
        return self.name("engine", url)

    @property
    def engines(self) -> str:
        """Set of engine addresses."""
        return self.name("engines")

    @property
    def engine_events(self) -> str:
        """Stream that wakes gateways when an engine changes its state."""
        return self.name("engine-events")

    @property
    def gateways(self) -> str:
        """Sorted set: gateway id → when it last showed itself."""
        return self.name("gateways")
