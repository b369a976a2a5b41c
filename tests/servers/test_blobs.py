"""Large contents and media: stored once, read on demand, never a wrong byte."""

import base64
import json
import random

import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.schema.codec import LogRecord, encode
from agent_layer.schema.ids import content_hash, new_id
from agent_layer.schema.rollout import AttemptStarted, Outcome
from agent_layer.schema.step import Action, Content, ContentRef, StepPart, StepState
from agent_layer.shipper.direct import DirectDestination
from agent_layer.store.maintenance.rebuild import read_segment
from agent_layer.store.reading.display import show_step, show_trajectory
from agent_layer.store.segments.blobs import BlobLimits, blob_key, list_blobs, pack, read_blob
from agent_layer.store.segments.format import segment_key

from ..profiles import num_examples


def picture(number: int, size_bytes: int = 6_000) -> bytes:
    """The JSON string of a data URL."""
    return b'"data:image/png;base64,%b"' % base64.b64encode(random.Random(number).randbytes(size_bytes))


def make_content(trajectory_id: str, body: bytes) -> Content:
    return Content(trajectory_id=trajectory_id, hash=content_hash(body), body=body)


def make_attempt(trajectory_id: str, *pictures: bytes) -> list[LogRecord]:
    """One attempt with a call for each picture that it shows."""
    own = {"trajectory_id": trajectory_id, "run": "r"}
    records: list[LogRecord] = [
        AttemptStarted(**own, rollout_id=trajectory_id[:-2], attempt=0, task_id="t", started_at=100.0)
    ]
    for number, body in enumerate(pictures):
        message = b'{"role":"user","content":{"$content":"%b"}}' % content_hash(body).encode()
        part = {**own, "source": "gateway", "call_id": f"{trajectory_id}/{number}"}
        reply = make_content(trajectory_id, message)
        records += [make_content(trajectory_id, body), reply]
        state = StepState(messages=[reply.hash])
        records += [
            StepPart(**part, phase="start", at=101.0 + number, state=state),
            StepPart(**part, phase="end", at=101.5 + number, actions=[Action(message={"role": "assistant"})]),
        ]
    return [*records, Outcome(**own, status="completed", ended_at=200.0)]


def shown_at(step: dict) -> object:
    """The picture in the only message of a step that is shown."""
    [message] = step["state"]["messages"]
    return message["content"]


def blobs_in(store):
    return sorted(list_blobs(store.keys, store.objects))


def records_in(store, name, owner):
    return read_segment(store.objects, segment_key(store.keys, name)).records[owner]


def test_pictures_and_long_texts_lie_beside_the_segment_and_come_back(store, ship):
    long = b'"%b"' % (b"word " * 20_000)
    records = [*make_attempt("x.0-0", picture(1), picture(2, 100)), make_content("x.0-0", long)]

    name = ship(*records)

    stored = records_in(store, name, "x.0-0")
    assert len([one for one in stored if isinstance(one, ContentRef)]) == len(blobs_in(store)) == 2
    assert max(len(one.body) for one in stored if isinstance(one, Content)) < 200
    expected = {one.hash: one.body for one in records if isinstance(one, Content)}
    assert store.get("x.0-0").contents == expected
    assert shown_at(show_step(store.get("x.0-0"), store.step("x.0-0", 0))) == json.loads(picture(1))


def test_what_several_trajectories_show_is_stored_once(store, watched, ship):
    ship(*make_attempt("x.0-0", picture(1)), *make_attempt("x.1-0", picture(1)))
    ship(*make_attempt("x.2-0", picture(1), picture(2)))

    assert len(watched.blobs("put")) == len(blobs_in(store)) == 2
    assert all(store.get(f"x.{n}-0").contents[content_hash(picture(1))] == picture(1) for n in range(3))


def test_a_segment_holds_each_content_of_a_trajectory_once(store, ship):
    records = make_attempt("x.0-0", picture(1), picture(2, 50))

    name = ship(*records, *records)

    kept = [one.hash for one in records_in(store, name, "x.0-0") if isinstance(one, Content | ContentRef)]
    assert len(kept) == len(set(kept)) == 4


def test_only_what_is_asked_for_is_fetched(store, watched, ship):
    ship(*make_attempt("x.0-0", *map(picture, range(5))))

    trajectory = store.get("x.0-0", blobs=False)
    contents = store.contents(trajectory)
    assert len(trajectory.steps) == 5
    assert store.step("x.0-0", 3).index == 3
    assert len(contents) == len(list(contents)) == 10
    assert watched.blobs("get") == []

    shown = [show_step(trajectory, trajectory.steps[3], contents) for _ in range(2)]
    assert shown_at(shown[0]) == shown_at(shown[1]) == json.loads(picture(3))
    assert len(watched.blobs("get")) == 1

    assert len(show_trajectory(store.row("x.0-0"), store.get("x.0-0"))["steps"]) == 5
    assert len(watched.blobs("get")) == 1 + 5


def test_without_its_blobs_a_trajectory_shows_where_they_belong(store, ship):
    ship(*make_attempt("x.0-0", picture(1)))
    trajectory = store.get("x.0-0", blobs=False)

    assert shown_at(show_step(trajectory, trajectory.steps[0])) == {"$content": content_hash(picture(1))}


@pytest.mark.parametrize("found", [b"", b"junk", pack(picture(2)), pack(picture(1))[:-1]])
def test_a_blob_that_is_not_what_its_name_says_is_refused_and_found(store, found, ship):
    ship(*make_attempt("x.0-0", picture(1)))
    [name] = blobs_in(store)
    store.objects.put(blob_key(store.keys, name), found)

    with pytest.raises(CorruptRecordError, match=name):
        store.get("x.0-0")
    report = store.admin.check(repair=True)
    assert [(one.kind, one.subject) for one in report.findings] == [("corrupt", "x.0-0")]
    assert name in report.findings[0].detail
    assert not report.is_sound


def test_a_blob_that_is_gone_is_named_and_the_rest_is_served(store, ship):
    ship(*make_attempt("x.0-0", picture(1), picture(2)))
    gone, kept = blobs_in(store)
    store.objects.delete(blob_key(store.keys, gone))

    with pytest.raises(NotFoundError, match=gone):
        store.get("x.0-0")
    contents = store.contents(trajectory := store.get("x.0-0", blobs=False))
    readable = [hash_ for hash_, blob in trajectory.blobs.items() if blob == kept]
    assert contents[readable[0]] == read_blob(store.keys, store.objects, kept)
    report = store.admin.check(repair=True)
    assert [(one.kind, one.subject) for one in report.findings] == [("lost", "x.0-0")]
    assert not report.is_sound


@pytest.mark.parametrize("name", ["../../secret", "", f"{'0' * 32}-{'0' * 25}/", f"{'0' * 32}\n-{'0' * 26}"])
def test_no_reference_leads_to_another_object_than_a_blob(store, watched, name):
    with pytest.raises(CorruptRecordError, match="found another name"):
        read_blob(store.keys, store.objects, name)
    assert watched.requests == []


def test_a_log_that_refers_to_a_blob_itself_is_refused(store, ship):
    ship(*make_attempt("x.0-0", picture(1)))
    stolen = ContentRef(trajectory_id="x.1-0", hash="h", blob=blobs_in(store)[0], size_bytes=1)

    refusal = DirectDestination(store.keys, store.redis, store.objects).store(new_id(), [encode(stolen)])

    assert "only shippers may refer to blobs" in refusal
    assert store.query(task="t").items[0].trajectory_id == "x.0-0"


def test_a_rebuild_gives_back_who_needs_what(store, ship):
    ship(*make_attempt("x.0-0", picture(1)), *make_attempt("x.1-0", picture(1), picture(2)))
    before = {key: store.redis.smembers(key) for key in store.redis.keys(store.keys.name("blob", "*"))}
    store.redis.delete(*store.redis.keys(store.keys.name("*")))

    assert store.admin.check().findings != []
    store.admin.reindex(drop=True)

    assert {key: store.redis.smembers(key) for key in store.redis.keys(store.keys.name("blob", "*"))} == before
    assert store.admin.check().findings == []
    assert store.get("x.1-0").contents[content_hash(picture(2))] == picture(2)


def test_what_only_a_newer_reader_knows_of_a_content_stays_with_its_reference(store, ship):
    newer = Content(trajectory_id="x.0-0", hash="h", body=picture(1), unknown={"shown_by": "camera"})

    name = ship(newer, limits=BlobLimits(1, 1))

    [reference] = records_in(store, name, "x.0-0")
    assert (reference.unknown, reference.size_bytes) == ({"shown_by": "camera"}, len(picture(1)))
    assert encode(reference)


def test_many_blobs_of_one_trajectory_are_entered_in_small_scripts(store, ship):
    bodies = [b'"%d"' % number for number in range(300)]

    ship(*make_attempt("x.0-0"), *(make_content("x.0-0", one) for one in bodies), limits=BlobLimits(1, 1))

    assert store.redis.hlen(store.keys.trajectory_blobs("x.0-0")) == 300
    assert sorted(store.get("x.0-0").contents.values()) == sorted(bodies)


bodies = st.text(max_size=12).map(lambda text: json.dumps(text).encode()) | st.integers(0, 3).map(
    lambda number: picture(number, 20)
)
contents = st.tuples(st.integers(0, 1), bodies)
limits = st.builds(BlobLimits, st.integers(1, 20), st.integers(1, 60))


@hypothesis_settings(max_examples=num_examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(segments=st.lists(st.tuples(st.lists(contents, max_size=6), limits), max_size=3))
def test_any_mixture_comes_back_as_it_was(store, ship, segments):
    life = new_id()
    attributes: dict[str, dict[str, bytes]] = {}
    for bodies_by_number, limits in segments:
        for number, body in bodies_by_number:
            trajectory_id = f"{life}.{number}-0"
            attributes.setdefault(trajectory_id, {})[content_hash(body)] = body
        trajectory_ids = {f"{life}.{number}-0" for number, _ in bodies_by_number}
        contents = [make_content(f"{life}.{number}-0", body) for number, body in bodies_by_number]
        ship(*(one for each in trajectory_ids for one in make_attempt(each)), *contents, limits=limits)

    for trajectory_id, expected in attributes.items():
        assert store.get(trajectory_id).contents == expected
        assert dict(store.contents(store.get(trajectory_id, blobs=False))) == expected
