"""Every object store, over a directory and over S3."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_layer.errors import NotFoundError, UnreachableError
from agent_layer.infra.objects.filesystem import open_objects
from agent_layer.settings import Settings


@pytest.fixture
def objects(objects_settings):
    return open_objects(objects_settings)


def test_what_was_put_is_read_whole_and_in_parts(objects):
    objects.put("a/b/c.seg", b"0123456789")

    assert objects.get("a/b/c.seg") == b"0123456789"
    assert objects.get("a/b/c.seg", 7) == b"789"
    assert objects.get("a/b/c.seg", 2, 3) == b"234"
    assert objects.get("a/b/c.seg", -4) == b"6789"
    assert objects.get("a/b/c.seg", 0, 4) == b"0123"
    assert objects.get("a/b/c.seg", 3, 0) == b""


def test_parts_are_cut_off_at_the_ends(objects):
    objects.put("short", b"abc")
    objects.put("empty", b"")

    assert objects.get("short", -100) == b"abc"
    assert objects.get("short", 1, 100) == b"bc"
    assert objects.get("short", 50) == objects.get("short", 50, 5) == b""
    assert objects.get("empty") == objects.get("empty", -5) == objects.get("empty", 0, 5) == b""


def test_putting_again_replaces(objects):
    objects.put("key", b"old")
    objects.put("key", b"new")

    assert objects.get("key") == b"new"
    assert list(objects.list("")) == ["key"]


def test_writers_of_the_same_key_do_not_get_in_each_others_way(objects):
    contents = [bytes([number]) * 100_000 for number in range(8)]

    with ThreadPoolExecutor(8) as threads:
        for _ in threads.map(lambda content: objects.put("same", content), contents * 4):
            assert objects.get("same") in contents

    assert list(objects.list("")) == ["same"]


def test_listing_gives_the_keys_that_begin_so_in_order(objects):
    for key in ("n/seg/2026/b.seg", "n/seg/2026/a.seg", "n/seg/2025/c.seg", "n/segment", "other/seg/x"):
        objects.put(key, b"")

    assert list(objects.list("n/seg/")) == ["n/seg/2025/c.seg", "n/seg/2026/a.seg", "n/seg/2026/b.seg"]
    assert list(objects.list("n/seg/2026/b")) == ["n/seg/2026/b.seg"]
    assert list(objects.list("n/seg")) == ["n/seg/2025/c.seg", "n/seg/2026/a.seg", "n/seg/2026/b.seg", "n/segment"]
    assert list(objects.list("nothing/here/")) == []


def test_listing_goes_over_more_than_one_page(objects):
    keys = [f"many/{number:04}" for number in range(1001)]
    for key in keys:
        objects.put(key, b"")

    assert list(objects.list("many/")) == keys


def test_what_was_deleted_is_gone_and_deleting_it_again_is_no_error(objects):
    objects.put("key", b"")
    objects.delete("key")
    objects.delete("key")

    assert list(objects.list("")) == []
    with pytest.raises(NotFoundError, match="'key'"):
        objects.get("key")


@pytest.mark.parametrize("settings", [Settings(objects_url="s3://bucket", s3_endpoint_url="http://127.0.0.1:1")])
def test_a_store_that_does_not_answer_is_named(settings, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")

    with pytest.raises(UnreachableError, match="s3://bucket: expected to store 'key'"):
        open_objects(settings).put("key", b"")


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(UnreachableError, match="Not a directory"):
        open_objects(Settings(objects_url=f"file://{tmp_path}/file")).put("a/key", b"")
