"""Every Redis key of a namespace, declared once: its owner, its content, and what becomes of it when Redis is emptied.

A word in angle brackets stands for any name. Documents, alarms and tests derive from this table. A test fails on a key
that a running line writes and that no row declares; another empties the server in mid-run and compares by fate.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.infra.redis.keys import Keys

Fate: TypeAlias = Literal["rebuilt", "announced", "lost"]
"""``rebuilt`` from the objects by ``store reindex``; ``announced`` again by its owner, by itself; ``lost``."""


class KeyFamily(msgspec.Struct, frozen=True):
    """Keys of one kind."""

    pattern: str
    """Name below the namespace."""
    owner: str
    """Room that writes it."""
    fate: Fate
    content: str
    loss: str = ""
    """What is gone with it, for people; for ``lost`` keys. Empty: nothing that anyone misses."""

    @property
    def expression(self) -> str:
        """Regular expression of its names below the namespace."""
        return re.sub(r"<[^>]*>", ".*", self.pattern)


_QUEUE: Final = "queued rollouts, leases and back-off"
_SHARES: Final = "pauses, shares and quotas of runs"
_POSITIONS: Final = "which groups consumers had acknowledged, and what their members held"

KEY_FAMILIES: Final[tuple[KeyFamily, ...]] = (
    KeyFamily(
        "t:<trajectory>", "store", "rebuilt", "hash: fields of a query row, labels with their ranks, the ordinal"
    ),
    KeyFamily("t:<trajectory>:chunks", "store", "rebuilt", "hash: segment → offset and size of its frame there"),
    KeyFamily("t:<trajectory>:calls", "store", "rebuilt", "hash: call id → which of start and end is stored, choices"),
    KeyFamily(
        "t:<trajectory>:part-rewards", "store", "rebuilt", "hash: reward id → encoded `Reward` of a step or an agent"
    ),
    KeyFamily("t:<trajectory>:rewards", "store", "rebuilt", "hash: reward id → encoded `Reward`"),
    KeyFamily(
        "t:<trajectory>:topics", "store", "rebuilt", "sorted set: topic and id of each reward of a step or an agent"
    ),
    KeyFamily(
        "t:<trajectory>:blobs", "store", "rebuilt", "hash: blob that it needs → 1; 0 while its segment is on its way"
    ),
    KeyFamily("b:<block>:<value>", "store", "rebuilt", "bitmap of the members of a block that have the value"),
    KeyFamily("b:<block>:<column>", "store", "rebuilt", "column of float64"),
    KeyFamily("b:<block>:ids:<n>", "store", "rebuilt", "hash: position → trajectory id"),
    KeyFamily("v:<value>", "store", "rebuilt", "bitmap of the blocks in which the value occurs"),
    KeyFamily("values:<field>", "store", "rebuilt", "set of the values that summaries group by"),
    KeyFamily("zones", "store", "rebuilt", "hash: block → smallest and largest number of each column"),
    KeyFamily("ordinals", "store", "rebuilt", "number of ordinals ever issued"),
    KeyFamily("segments", "store", "rebuilt", "hash: committed segment → size"),
    KeyFamily("quarantine", "store", "rebuilt", "hash: segment that cannot be read whole → reason"),
    KeyFamily("rewrite", "store", "rebuilt", "set: segments with deleted bytes, or that another one replaces"),
    KeyFamily("dead", "store", "rebuilt", "hash: SHA-1 of what was deleted → when"),
    KeyFamily("group:<group>", "store", "rebuilt", "encoded `Group`"),
    KeyFamily(
        "group:<group>/accepted",
        "store",
        "rebuilt",
        "hash: rollout → its accepted attempt; until the group has a record, 30 days at most",
    ),
    KeyFamily("groups:<run>", "store", "rebuilt", "sorted set of groups by time of closing"),
    KeyFamily("group-segments", "store", "rebuilt", "hash: group → segments that hold it"),
    KeyFamily("batches:<run>", "store", "rebuilt", "hash: batch id → encoded `TrainedBatch`"),
    KeyFamily("batch-segments", "store", "rebuilt", "hash: run and step → segments that hold it"),
    KeyFamily(
        "policies:<run>",
        "engines",
        "rebuilt",
        "hash: number → encoded `PolicyVersion`; gateways and trainers announce theirs",
    ),
    KeyFamily("runs", "store", "rebuilt", "set of runs"),
    KeyFamily("blobs", "store", "rebuilt", "hash: content hash → name of its blob, and whether it is stored"),
    KeyFamily("blob:<name>", "store", "rebuilt", "set: trajectories that need a blob"),
    KeyFamily(
        "q:server",
        "infra",
        "announced",
        "hash: run id of the server, its newest change, the change up to which the index is whole",
    ),
    KeyFamily("clock", "infra", "announced", "time by which leases lapse; each process counts on from it"),
    KeyFamily("engines", "engines", "announced", "set: addresses of engines"),
    KeyFamily(
        "engine:<url>",
        "engines",
        "announced",
        "hash: state, version, revision, drain flag, hashes of tokenizer and template; by each gateway that knew it",
    ),
    KeyFamily(
        "engine-keys",
        "engines",
        "announced",
        "hash: address → key that an engine asks for; for gateways, trainers and operators",
    ),
    KeyFamily("engine-events", "engines", "announced", "stream: changes of engines; it wakes gateways"),
    KeyFamily("gateways", "engines", "announced", "sorted set: gateway → its last renewal"),
    KeyFamily("operator-key", "state", "announced", "salt and digest of the operator's key; by each gateway"),
    KeyFamily(
        "pages", "view", "announced", "sorted set: address of each page → its last renewal; commands link to one"
    ),
    KeyFamily("trainer:<run>", "trainer", "announced", "for a minute: directory and host of the run's trainer"),
    KeyFamily("q:workers", "dispatcher", "announced", "sorted set: worker → its last heartbeat"),
    KeyFamily("q:worker", "dispatcher", "announced", "hash: worker → what it reports of itself"),
    KeyFamily("data-loss", "state", "announced", "for a day: when a gateway noticed that Redis had lost data"),
    KeyFamily(
        "engines-left", "engines", "lost", "sorted set: engine that left → revision of its entry then; for a week"
    ),
    KeyFamily("q:r:<rollout>", "dispatcher", "lost", "hash: status, attempts, lease and errors of a rollout", _QUEUE),
    KeyFamily("q:g:<group>", "dispatcher", "lost", "hash: task, size and state of a group", _QUEUE),
    KeyFamily("q:ready", "dispatcher", "lost", "set: names of ready sets that an earlier version filled", _QUEUE),
    KeyFamily("q:sets:<run>", "dispatcher", "lost", "set: names of ready sets of a run", _QUEUE),
    KeyFamily("q:classes:<need>", "dispatcher", "lost", "sorted set: classes of ready sets, by priority", _QUEUE),
    KeyFamily(
        "q:due:<class>",
        "dispatcher",
        "lost",
        "sorted set: runs whose turn has come, by the lowest place that waits",
        _QUEUE,
    ),
    KeyFamily("q:turns:<class>", "dispatcher", "lost", "sorted set: turns that come later", _QUEUE),
    KeyFamily("q:later:<class>:<turn>", "dispatcher", "lost", "sorted set: runs of that turn", _QUEUE),
    KeyFamily("q:awaiting", "dispatcher", "lost", "sorted set: runs that wait for a policy version", _QUEUE),
    KeyFamily("q:waiting", "dispatcher", "lost", "hash: needs → rollouts that may be claimed with them", _QUEUE),
    KeyFamily("q:num_waiting", "dispatcher", "lost", "sum of these", _QUEUE),
    KeyFamily("q:unfinished", "dispatcher", "lost", "set: groups that are launched or closed in part", _QUEUE),
    KeyFamily("q:num_unfilled", "dispatcher", "lost", "rollouts of these that are not claimable yet", _QUEUE),
    KeyFamily(
        "q:members:<group>", "dispatcher", "lost", "list: accepted attempts of a group that is being closed", _QUEUE
    ),
    KeyFamily(
        "q:ready:<name>", "dispatcher", "lost", "sorted set: rollouts that may be claimed, by their place", _QUEUE
    ),
    KeyFamily("q:delayed", "dispatcher", "lost", "sorted set: rollouts in back-off, by its end", _QUEUE),
    KeyFamily("q:leases", "dispatcher", "lost", "sorted set: leased rollouts, by the end of the lease", _QUEUE),
    KeyFamily("q:paused", "dispatcher", "lost", "sorted set: paused rollouts", _QUEUE),
    KeyFamily("q:parting", "dispatcher", "lost", "sorted set: rollouts that were cancelled under a lease", _QUEUE),
    KeyFamily("q:open", "dispatcher", "lost", "sorted set: groups that are not closed", _QUEUE),
    KeyFamily("q:seq", "dispatcher", "lost", "counter of places", _QUEUE),
    KeyFamily("q:clock", "dispatcher", "lost", "hash: newest token, turn, time of the last call", _QUEUE),
    KeyFamily("q:claims", "dispatcher", "lost", "hash: worker → leases of its newest claim"),
    KeyFamily("q:calls:<worker>", "dispatcher", "lost", "stream that wakes one worker"),
    KeyFamily("q:calls", "dispatcher", "lost", "stream that wakes all workers"),
    KeyFamily("q:kinds", "dispatcher", "lost", "hash: kind of waiting worker → what it can serve"),
    KeyFamily("q:waiters:<kind>", "dispatcher", "lost", "sorted set: waiting workers, by when they look by themselves"),
    KeyFamily("q:wake:<waiter>", "dispatcher", "lost", "list that wakes one of them"),
    KeyFamily("q:wake", "dispatcher", "lost", "stream that wakes pages"),
    KeyFamily("q:closed", "dispatcher", "lost", "stream of closed groups"),
    KeyFamily(
        "q:draining",
        "dispatcher",
        "lost",
        "set: workers that were asked to drain",
        "requests to drain that a worker had not seen",
    ),
    KeyFamily(
        "q:dead",
        "dispatcher",
        "lost",
        "sorted set: rollouts that failed too often",
        "dead letters (their attempts are in the store)",
    ),
    KeyFamily("q:paused_runs", "dispatcher", "lost", "hash: run → why it is paused", _SHARES),
    KeyFamily("q:holds", "dispatcher", "lost", "set: paused runs whose leased rollouts pause, too", _SHARES),
    KeyFamily("q:runs", "dispatcher", "lost", "set: runs that ever were asked for", _SHARES),
    KeyFamily("q:book:<run>", "dispatcher", "lost", "hash: weight, quota, turn, counts, served version", _SHARES),
    KeyFamily("q:window:<run>", "dispatcher", "lost", "list: newest attempts, ended well or failed"),
    KeyFamily("q:ended:<run>", "dispatcher", "lost", "hash: minute → rollouts accepted in it"),
    KeyFamily("q:took:<run>", "dispatcher", "lost", "hash: task → time that an attempt takes"),
    KeyFamily(
        "outbox",
        "state",
        "lost",
        "stream: decisions that are not in a segment yet",
        "decisions of the last seconds that no segment has",
    ),
    KeyFamily("outbox-batch", "state", "lost", "hash: how many of the oldest decisions are being shipped"),
    KeyFamily("acked:<run>:<consumer>", "store", "lost", "set: groups that a consumer acknowledged", _POSITIONS),
    KeyFamily(
        "feeds:<run>", "store", "lost", "hash: consumer and split → the closed group that it reached", _POSITIONS
    ),
    KeyFamily(
        "claims:<run>:<consumer>:<split>:<part>",
        "store",
        "lost",
        "what the members of a consumer hold, and their sessions",
        _POSITIONS,
    ),
    KeyFamily(
        "exported:<consumer>",
        "export",
        "lost",
        "position of `export otlp --follow`",
        "positions of exports that follow",
    ),
    KeyFamily("q:restoring", "store", "lost", "holder of the restoration of the index"),
    KeyFamily("synced", "infra", "lost", "written before each wait for the disk"),
    KeyFamily("reindexing", "store", "lost", "hash: position of an unfinished rebuild"),
    KeyFamily("cooled", "store", "lost", "set: runs whose index `store cool` removed; a rebuild empties it"),
    KeyFamily("replaced:<segment>", "store", "lost", "for a day: what a segment was merged into"),
    KeyFamily("merging", "store", "lost", "set: merged segments that are not committed yet"),
    KeyFamily("compacting", "store", "lost", "holder of the maintenance lock"),
    KeyFamily(
        "judged:<trajectory>:<reward>",
        "store",
        "lost",
        "for a day: the first reward under an id that may be sent twice",
    ),
    KeyFamily("unneeded", "store", "lost", "set: blobs without a reference, until garbage collection"),
    KeyFamily("events", "store", "lost", "stream of changes; it wakes followers, exports and the page"),
    KeyFamily("steps", "store", "lost", "stream of running trajectories that got steps; it wakes the page"),
)


_DECLARED: Final = re.compile("|".join(family.expression for family in KEY_FAMILIES), re.DOTALL)


def is_declared(keys: Keys, key: str) -> bool:
    """Whether a key belongs to a family of the table."""
    return _DECLARED.fullmatch(key.removeprefix(keys.name(""))) is not None


def find_families(keys: Keys, key: str) -> list[KeyFamily]:
    """Return the families that a key may belong to; several where a name stands for more than one."""
    name = key.removeprefix(keys.name(""))
    return [family for family in KEY_FAMILIES if re.fullmatch(family.expression, name, re.DOTALL)]


def describe_lost() -> str:
    """Return what is gone when Redis was emptied, and neither rebuilt nor announced again."""
    return "; ".join(dict.fromkeys(family.loss for family in KEY_FAMILIES if family.loss))


def table_lines(fate: Fate) -> Iterator[str]:
    """Yield the lines of a Markdown table of the keys of one fate."""
    yield from ("| key | owner | content |", "|---|---|---|")
    for family in KEY_FAMILIES:
        if family.fate == fate:
            yield f"| `{family.pattern}` | {family.owner} | {family.content} |"
