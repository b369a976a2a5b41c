"""Labels given later: the newest of a name counts, nothing is overwritten, and objects alone restore every answer."""

import random

import msgspec
import pytest

from agent_layer.errors import BadInputError, NotFoundError
from agent_layer.recorder import open_recorder
from agent_layer.schema.reward import Label, label_rank
from agent_layer.store import open_store
from agent_layer.store.index.rows import GivenLabel, TrajectoryRow
from agent_layer.store.maintenance.merge_plan import Limits
from agent_layer.store.reading.labels import MAX_LABELS, make_label

from ...builders import attempt
from ...stored import keys_that_hold, write_segment

NAMES, VALUES = ("verdict", "cause", "team"), ("a", "b", None)


@pytest.fixture
def store(settings):
    return open_store(settings)


@pytest.fixture
def label(store, settings):
    """``label(name, value, **options)``: a person's label for x.0-0, once it is indexed."""

    def label(name, value, tid="x.0-0", **options):
        given = store.label(tid, name=name, value=value, **options)
        assert open_recorder(settings).flush().pending == 0
        return given

    return label


def found(store, **labels):
    return [row.trajectory_id for row in store.query(labels=labels, order="oldest", limit=200).items]


def answers(store):
    rows = list(store.scan())
    by_label = {(name, value): found(store, **{name: value}) for name in NAMES for value in VALUES if value}
    return rows, by_label, {row.trajectory_id: store.get(row.trajectory_id) for row in rows}


def test_a_label_supersedes_that_of_the_task_and_is_withdrawn(store, label):
    write_segment(store, *attempt("x.0-0", score=1.0, labels={"team": "red"}))
    write_segment(store, *attempt("y.0-0", score=1.0, labels={"team": "red"}))

    label("verdict", "wrong", comment="read the hint")
    label("team", "blue")
    assert (found(store, verdict="wrong"), found(store, team="blue"), found(store, team="red")) == (
        ["x.0-0"],
        ["x.0-0"],
        ["y.0-0"],
    )
    label("team", None)
    label("verdict", "right")

    assert store.row("x.0-0").labels == store.get("x.0-0").labels == {"verdict": "right"}
    assert (found(store, verdict="wrong"), found(store, team="blue"), found(store, team="red")) == ([], [], ["y.0-0"])
    history = [(one.name, one.value, one.source, one.comment) for one in store.get("x.0-0").given_labels]
    assert history == [
        ("verdict", "wrong", "human", "read the hint"),
        ("team", "blue", "human", None),
        ("team", None, "human", None),
        ("verdict", "right", "human", None),
    ]
    assert store.row("x.0-0").reward == 1.0


@pytest.mark.parametrize("seed", range(4))
def test_labels_in_any_order_and_repeated_answer_like_python_and_like_a_rebuild(store, seed):
    chance = random.Random(seed)
    ids = [f"x.{number}-0" for number in range(6)]
    expected = {}
    segments = [attempt(tid, at=10.0 * at, labels=chance.choice([{}, {"team": "a"}])) for at, tid in enumerate(ids)]
    for tid, (started, *_) in zip(ids, segments, strict=True):
        expected[tid] = dict.fromkeys(NAMES) | started.labels
    given = [
        Label(
            trajectory_id=chance.choice(ids),
            label_id=f"l{number:02}",
            run="r",
            at=float(chance.randrange(8)),
            name=chance.choice(NAMES),
            value=chance.choice(VALUES),
        )
        for number in range(40)
    ]
    for one in sorted(given, key=lambda one: (one.at, one.label_id)):
        expected[one.trajectory_id][one.name] = one.value
    segments += [given[at : at + 3] for at in range(0, len(given), 3)]
    order = segments + chance.choices(segments, k=8)
    chance.shuffle(order)
    for records in order:
        write_segment(store, *records)

    rows, by_label, trajectories = answers(store)
    known = {tid: {name: value for name, value in labels.items() if value} for tid, labels in expected.items()}
    assert {row.trajectory_id: row.labels for row in rows} == known
    assert {tid: one.labels for tid, one in trajectories.items()} == known
    assert by_label == {
        (name, value): [tid for tid in ids if known[tid].get(name) == value] for name, value in by_label
    }
    assert store.admin.check().findings == []
    store.admin.reindex(drop=True)
    assert answers(store) == (rows, by_label, trajectories)
    store.admin.compact(limits=Limits(least_age_seconds=0))
    store.admin.reindex(drop=True)
    assert answers(store) == (rows, by_label, trajectories)
    assert store.admin.check().findings == []


def test_a_slow_clock_supersedes_what_it_has_seen():
    row, known = TrajectoryRow(trajectory_id="x-0", run="r"), {}
    for value, at in (("a", 100.0), ("b", 5.0), ("c", 100.0)):
        made = make_label(row, "n", value, {}, known, "r", clock=lambda at=at: at)
        rank, _ = label_rank(made)
        assert all(rank > one.rank for one in known.values())
        known = {"n": GivenLabel(rank, value)}


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("", "x", "1 to 128 characters"),
        ("n" * 129, "x", "found 129 characters"),
        ("a=b", "x", "expected no '='"),
        ("n", "v" * 10_000, "found 10000 characters"),
        ("n", "", "1 to 256 characters"),
        ("n", " x", "without spaces"),
        ("n", "a\nb", "can be printed"),
        ("n", 3, "found 3"),
        ("absent", None, r"\(team\) to withdraw, found 'absent'"),
    ],
)
def test_what_is_no_label_is_refused_and_nothing_is_harmed(store, settings, name, value, sentence):
    write_segment(store, *attempt("x.0-0", labels={"team": "red"}))
    before = answers(store)

    with pytest.raises(BadInputError, match=sentence):
        store.label("x.0-0", name=name, value=value)
    with pytest.raises(NotFoundError, match="unknown"):
        store.label("unknown", name="n", value="v")
    assert open_recorder(settings).flush().pending == 0
    assert answers(store) == before


def test_a_trajectory_has_so_many_names_and_no_more(store):
    names = [f"n{number}" for number in range(MAX_LABELS)]
    own = {"trajectory_id": "x.0-0", "run": "r", "at": 1.0, "value": "v"}
    write_segment(store, *attempt("x.0-0"), *(Label(**own, label_id=name, name=name) for name in names))

    with pytest.raises(BadInputError, match=f"at most {MAX_LABELS} names"):
        store.label("x.0-0", name="another", value="v")
    assert store.label("x.0-0", name="n3", value="w").value == "w"


def test_labels_of_the_deleted_are_gone_and_stay_gone(store, label):
    write_segment(store, *attempt("x.0-0"))
    write_segment(store, *attempt("y.0-0"))
    late = label("who", "user-seven")
    label("who", "user-eight", "y.0-0")
    assert list(keys_that_hold(store, "user-seven"))

    store.delete(labels={"who": "user-seven"})

    with pytest.raises(NotFoundError, match=r"x\.0-0"):
        store.label("x.0-0", name="who", value="user-nine")
    write_segment(store, msgspec.structs.replace(late, label_id="again"))
    assert (found(store, who="user-seven"), found(store, who="user-eight")) == ([], ["y.0-0"])
    store.admin.reindex(drop=True)
    assert (found(store, who="user-seven"), found(store, who="user-eight")) == ([], ["y.0-0"])
    store.admin.compact(limits=Limits(least_age_seconds=0))
    assert list(keys_that_hold(store, "user-seven")) == []
    assert store.admin.check().findings == []


def test_fields_of_a_newer_writer_survive_compaction(store):
    newer = {"confidence": 0.75}
    own = {"trajectory_id": "x.0-0", "run": "r", "name": "n", "value": "v"}
    write_segment(store, *attempt("x.0-0"))
    write_segment(store, Label(**own, label_id="a", at=1.0, unknown=newer))

    store.admin.compact(limits=Limits(least_age_seconds=0))

    assert [one.unknown for one in store.get("x.0-0").given_labels] == [newer]
