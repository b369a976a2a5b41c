"""This file holds the promises of segments: what goes in comes out, and a changed byte is noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_layer.errors import CorruptRecordError
from agent_layer.store.keys import Keys
from agent_layer.store.objects import DirectoryObjects
from agent_layer.store.segments import build_segment, read_chunk, read_footer, segment_key

owned = st.dictionaries(st.text(max_size=8), st.lists(st.binary(max_size=40), max_size=4), max_size=5)


class OneObject:
    """An object store with one object in it."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def get(self, _key: str, offset: int = 0, size: int | None = None) -> bytes:
        part = self.content[offset:]
        return part[:size]


@given(owned)
def test_every_record_comes_back_from_the_chunk_of_its_owner(records):
    content, footer = build_segment("name", 1.5, records)
    objects = OneObject(content)

    assert read_footer(objects, "key") == footer
    assert {chunk.owner: read_chunk(objects, "key", chunk) for chunk in footer.chunks} == records
    assert build_segment("name", 1.5, records)[0] == content


@given(owned, st.data())
def test_a_changed_byte_is_noticed(records, data):
    content, _ = build_segment("name", 1.5, records)
    position = data.draw(st.integers(0, len(content) - 1))
    objects = OneObject(content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :])

    with pytest.raises(CorruptRecordError):
        _ = [read_chunk(objects, "key", chunk) for chunk in read_footer(objects, "key").chunks]


def test_a_footer_longer_than_one_read_is_read_whole(tmp_path):
    content, footer = build_segment("name", 1.5, {f"{number:x}" * 40: [] for number in range(5000)})
    objects = DirectoryObjects(tmp_path)
    objects.put("key", content)

    assert content[-(1 << 16) :] != content
    assert read_footer(objects, "key") == footer


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 1000])
def test_what_is_no_segment_is_refused(content):
    with pytest.raises(CorruptRecordError, match="expected to end as a segment"):
        read_footer(OneObject(content), "key")


def test_a_segment_lies_under_the_day_of_its_making():
    assert segment_key(Keys("space"), "name", 1_795_000_000.0) == "space/seg/2026/11/18/name.seg"
