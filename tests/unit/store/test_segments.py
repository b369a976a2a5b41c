"""Segments: records survive a round trip, a changed byte is detected, whole chunks of a torn one stay readable."""

import msgspec
import pytest
from hypothesis import given, strategies as st
from zstandard import ZstdCompressor

from agent_layer.errors import BadInputError, CorruptRecordError
from agent_layer.infra.objects.filesystem import DirectoryObjects
from agent_layer.infra.redis.keys import Keys
from agent_layer.recorder.frames import frame
from agent_layer.schema.codec import encode
from agent_layer.schema.ids import new_id
from agent_layer.schema.step import Action, Content
from agent_layer.store.segments.format import (
    StoredRecord,
    build_segment,
    read_chunk,
    read_footer,
    salvage_segment,
    segment_key,
    segment_name,
    unpack,
)
from agent_layer.store.segments.summary import describe_owner, read_record

from ...builders import attempt, call

NAME = new_id(lambda: 1_795_000_000_000_000_000)


def stored(trajectory_id, body=b"1"):
    record = Content(trajectory_id=trajectory_id, hash="h", body=body)
    return StoredRecord(record, encode(record))


owned = st.dictionaries(st.text(min_size=1, max_size=8), st.lists(st.binary(max_size=40), max_size=4), max_size=5).map(
    lambda bodies: {owner: [stored(owner, body) for body in ours] for owner, ours in bodies.items()}
)


class OneObject:
    """An object store with one object in it."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def get(self, _key: str, offset: int = 0, size: int | None = None) -> bytes:
        part = self.content[offset:]
        return part[:size]


@given(owned)
def test_every_record_comes_back_from_the_chunk_of_its_owner(records):
    content, sealed = build_segment(NAME, records)
    objects = OneObject(content)

    assert read_footer(objects, "key") == sealed
    assert sealed.size_bytes == len(content)
    assert {chunk.owner: read_chunk(objects, "key", chunk) for chunk in sealed.footer.chunks} == {
        owner: [one.content for one in ours] for owner, ours in records.items()
    }
    assert build_segment(NAME, records)[0] == content


@given(owned, st.data())
def test_a_changed_byte_is_noticed(records, data):
    content, _ = build_segment(NAME, records)
    position = data.draw(st.integers(0, len(content) - 1))
    objects = OneObject(content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :])

    with pytest.raises(CorruptRecordError):
        _ = [read_chunk(objects, "key", chunk) for chunk in read_footer(objects, "key").footer.chunks]


@given(st.integers(1, 6), st.data())
def test_of_a_torn_segment_every_whole_chunk_is_kept(num_owners, data):
    content, sealed = build_segment(NAME, {f"r.{number}-0": [stored(f"r.{number}-0")] for number in range(num_owners)})
    torn = content[: data.draw(st.integers(0, len(content) - 1))]

    saved = salvage_segment(torn, NAME)

    whole = [chunk for chunk in sealed.footer.chunks if chunk.offset + chunk.size_bytes <= len(torn)]
    assert (saved.footer.chunks if saved else []) == whole
    assert [one.trajectory_id for one in (saved.footer.trajectories if saved else [])] == [one.owner for one in whole]


def test_a_damaged_chunk_takes_no_other_with_it():
    content, sealed = build_segment(NAME, {f"r.{number}-0": [stored(f"r.{number}-0")] for number in range(3)})
    spoiled = bytearray(content)
    spoiled[sealed.footer.chunks[1].offset + 12] ^= 1

    saved = salvage_segment(bytes(spoiled), NAME)

    assert [chunk.owner for chunk in saved.footer.chunks] == ["r.0-0", "r.2-0"]


def test_a_footer_longer_than_one_read_is_read_whole(tmp_path):
    content, sealed = build_segment(NAME, {f"{number:x}" * 40: [] for number in range(5000)})
    objects = DirectoryObjects(tmp_path)
    objects.put("key", content)

    assert sealed.size_bytes > 1 << 16
    assert read_footer(objects, "key") == sealed


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 1000])
def test_what_is_no_segment_is_refused(content):
    with pytest.raises(CorruptRecordError, match="expected to end as a segment"):
        read_footer(OneObject(content), "key")


def test_a_segment_lies_under_the_day_of_its_making():
    key = segment_key(Keys("space"), f"{NAME}-host-1")

    assert key == f"space/seg/2026/11/18/{NAME}-host-1.seg"
    assert segment_name(key) == f"{NAME}-host-1"
    assert segment_name("space/seg/notes.txt") is None


def test_a_name_that_is_no_id_is_refused():
    with pytest.raises(BadInputError, match="segment 'notes!'"):
        segment_key(Keys("space"), "notes!")


def test_a_segment_of_a_later_format_is_not_taken_apart():
    content, _ = build_segment(NAME, {"r.0-0": [stored("r.0-0")]})
    later = content[:-12] + (2).to_bytes(4, "little") + content[-8:]

    with pytest.raises(CorruptRecordError, match="written by a later version"):
        read_footer(OneObject(later), "key")
    assert salvage_segment(later, NAME) is None


@pytest.mark.parametrize("claimed", [b"", b"(\xb5/\xfd\xe0" + b"\xff" * 7 + b"\x0f" + b"\x01\x00\x00"])
def test_a_chunk_of_another_program_is_corrupt_whatever_size_it_claims(claimed):
    """Its checksum is right: it was written so."""
    packed = frame(claimed or b"no zstd")

    with pytest.raises(CorruptRecordError, match="another program wrote it"):
        unpack(packed, len(packed), "chunk")


@pytest.mark.parametrize("records", [[], [b"one", b"other"]])
def test_a_footer_that_is_not_one_record_is_corrupt(records):
    packed = frame(ZstdCompressor().compress(msgspec.msgpack.encode(records)))
    content = packed + len(packed).to_bytes(4, "little") + (1).to_bytes(4, "little") + b"ALSEGMNT"

    with pytest.raises(CorruptRecordError, match=f"expected one record, found {len(records)}"):
        read_footer(OneObject(content), "key")


scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.just("t" * 200)
tool = st.fixed_dictionaries({}, optional={"name": scalars, "arguments": scalars})
tool_call = scalars | st.fixed_dictionaries({}, optional={"function": scalars | tool, "name": scalars, "id": scalars})
message = st.fixed_dictionaries(
    {}, optional={"content": scalars, "tool_calls": scalars | st.lists(tool_call, max_size=3)}
)
version = st.integers(-(2**62), 2**62)
action = st.builds(
    Action, message=st.none() | message, policy_versions=st.none() | st.lists(st.tuples(version, version))
)
step = st.tuples(st.lists(action, max_size=3), st.sampled_from([None, "", "solver"]), st.lists(st.text(), max_size=2))


@given(st.lists(step, max_size=3))
def test_a_summary_of_outlines_is_that_of_whole_records_whatever_the_message_looks_like(steps):
    records = attempt("a.0-0")
    for at, (actions, agent, findings) in enumerate(steps):
        records += call("a.0-0", f"c{at}", *actions, agent=agent, engine=agent, findings=findings)

    assert describe_owner([read_record(encode(one)) for one in records]) == describe_owner(records)
