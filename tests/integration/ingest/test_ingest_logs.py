"""Logs that an ingest server accepts, and its errors for everything else."""

import asyncio
import gzip
import json
import math
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
import zstandard
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given, strategies as st

from agent_layer.errors import BadInputError
from agent_layer.ingest.app import build_app
from agent_layer.ingest.http import IngestMemory, unpack
from agent_layer.ingest.ledger import IngestLedger
from agent_layer.ingest.logs import read_log
from agent_layer.recorder import Recorder
from agent_layer.recorder.frames import FRAME_HEADER, frame, read_frames
from agent_layer.schema.codec import encode
from agent_layer.schema.ids import new_id
from agent_layer.schema.reward import Reward
from agent_layer.schema.step import Content
from agent_layer.settings import load_settings

NAME = f"{new_id()}-host-1"
KEY = {"x-api-key": "ingest-key"}


def record(text: str) -> bytes:
    return encode(Content(trajectory_id="r.0-0", hash=text, body=b"1"))


LOG = b"".join(frame(record(text)) for text in "abc")
A, B = frame(record("a")), frame(record("b"))
LYING = FRAME_HEADER.pack(1 << 31, 0) + record("a")


@given(st.integers(0, len(LOG) - 1), st.integers(1, 255))
def test_a_log_with_any_byte_changed_is_refused(position, change):
    damaged = bytearray(LOG)
    damaged[position] ^= change

    with pytest.raises(BadInputError, match="expected whole frames"):
        read_log(NAME, bytes(damaged))


@given(st.integers(0, len(LOG) - 1))
def test_a_log_that_is_cut_off_is_refused_or_ends_with_a_whole_record(length):
    if read_frames(LOG[:length])[1] == 0 and length:
        assert read_log(NAME, LOG[:length])
    else:
        with pytest.raises(BadInputError, match="expected whole frames"):
            read_log(NAME, LOG[:length])


@pytest.mark.parametrize("packed", [b"", b"poetry", zstandard.compress(LOG)[:-1], zstandard.compress(LOG) + b"more"])
def test_what_zstd_did_not_pack_is_refused(packed):
    with IngestMemory(1 << 20).hold() as held, pytest.raises(BadInputError, match="zstd body"):
        unpack(packed, "zstd", "log", 1 << 20, held)


@pytest.mark.parametrize("says_its_size", [True, False])
def test_a_small_body_that_would_become_a_large_one_is_refused_unopened(says_its_size):
    bomb = zstandard.ZstdCompressor(write_content_size=says_its_size).compress(bytes(1 << 24))

    with IngestMemory(1 << 20).hold() as held, pytest.raises(web.HTTPRequestEntityTooLarge):
        unpack(bomb, "zstd", "log", 1 << 20, held)


@pytest.mark.parametrize("at", [math.nan, math.inf, -1.0, 1e12])
def test_a_time_that_no_clock_shows_is_refused_before_it_spoils_what_others_read(at):
    answer = Reward(trajectory_id="r.0-0", reward_id="w", run="r", at=at, score=1.0)

    with pytest.raises(BadInputError, match="expected at between 1970 and 3000"):
        read_log(NAME, frame(encode(answer)))


@pytest.fixture
async def client(settings) -> AsyncIterator[TestClient]:
    """A client of an ingest server whose log has no shipper."""
    settings = settings.model_copy(
        update={"ingest_key": KEY["x-api-key"], "max_body_bytes": 5000, "ingest_seconds": 0.1}
    )
    recorder = Recorder(settings)
    async with TestClient(TestServer(build_app(settings, recorder))) as client:
        yield client
    recorder.close()


@pytest.mark.parametrize(
    ("sent", "status", "message"),
    [
        ((NAME, LOG, {"x-api-key": "other"}), 401, "AGENT_LAYER_INGEST_KEY"),
        ((NAME, LOG, {"x-api-key": ""}), 401, "AGENT_LAYER_INGEST_KEY"),
        (("notes.txt", LOG, KEY), 400, "expected the name of a log"),
        ((f"{NAME}%2F..%2Fx", LOG, KEY), 400, "expected the name of a log"),
        ((NAME, b"", KEY), 400, "expected whole frames"),
        ((NAME, LOG[:-1], KEY), 400, "found 2 and then"),
        ((NAME, LYING, KEY), 400, "found 0 and then"),
        ((NAME, frame(b"\x81\xa4type\xa6poetry"), KEY), 400, "msgpack of a known kind"),
        ((NAME, LOG, KEY | {"content-type": "application/zstd"}), 400, "zstd body"),
        ((NAME, LOG, KEY | {"content-encoding": "gzip"}), 400, "is gzip"),
        ((NAME, bytes(5001), KEY), 413, "5000 bytes at most"),
        ((NAME, gzip.compress(bytes(5001)), KEY | {"content-encoding": "gzip"}), 413, "5000 bytes at most"),
        (
            (NAME, zstandard.compress(bytes(5001)), KEY | {"content-type": "application/zstd"}),
            413,
            "5000 bytes at most",
        ),
        ((NAME, LOG, KEY), 503, "not committed within 0.1 s"),
    ],
)
async def test_what_is_not_committed_is_answered_by_a_sentence(client, settings, sent, status, message):
    name, body, headers = sent
    url = f"/v1/logs/{settings.namespace}/{name}"
    async with client.post(url, data=body, headers=headers, skip_auto_headers=["content-type"]) as answer:
        content_read = json.loads(await answer.read())

    assert answer.status == status
    assert message in content_read["error"]
    assert ("retry-after" in answer.headers) == (status == 503)
    assert bool([*settings.log_dir.glob("*-*")]) == (status == 503)


async def test_logs_of_another_namespace_are_not_taken(client):
    async with client.post(f"/v1/logs/elsewhere/{NAME}", data=LOG, headers=KEY) as answer:
        assert answer.status == 404
        assert "of namespace 'test-" in (await answer.json())["error"]


def read(body: bytes) -> list[bytes]:
    return read_log(NAME, body)


@pytest.fixture
def own_log(settings) -> Recorder:
    """A log without a shipper, never renamed while a test reads it."""
    recorder = Recorder(settings.model_copy(update={"log_roll_seconds": 60}))
    yield recorder
    recorder.close()


def kept_in(settings) -> int:
    """Number of records in this machine's own logs."""
    return sum(len(read_frames(path.read_bytes())[0]) for path in settings.log_dir.glob("*-*"))


async def test_two_copies_that_come_at_once_are_kept_once(settings, own_log):
    custody = IngestLedger(own_log)

    first, second = await asyncio.gather(*(custody.append_log(NAME, A, read) for _ in range(2)))

    assert first == second
    assert kept_in(settings) == 1


async def test_a_log_that_was_mended_is_kept_beside_what_was_whole_of_it_before(settings, own_log):
    custody = IngestLedger(own_log)

    await custody.append_log(NAME, A, read)
    await custody.append_log(NAME, A + B, read)

    assert kept_in(settings) == 3


async def test_a_log_that_was_damaged_in_custody_is_not_called_committed_and_is_taken_again(settings, own_log):
    custody = IngestLedger(own_log)
    watch = asyncio.create_task(custody.watch())
    first = await custody.append_log(NAME, A, read)
    own_log.close()
    waiting = asyncio.create_task(custody.wait_committed(first, 10))
    (settings.log_dir / f"{first}.log").rename(settings.log_dir / f"{first}.corrupt")

    assert await waiting is False
    assert await custody.append_log(NAME, A, read) != first
    watch.cancel()


@pytest.mark.parametrize("url", ["ingest:4318", "s3://bucket", "http://"])
def test_an_address_that_nothing_can_be_sent_to_is_bad_input(url):
    with pytest.raises(BadInputError, match="setting ingest_url"):
        load_settings(ingest_url=url)


def test_a_machine_that_only_sends_loads_neither_redis_nor_s3():
    loads = "import sys, agent_layer.shipper.lifecycle, agent_layer.shipper.remote"
    script = f"{loads}; print({{'redis', 'boto3'}} & {{*sys.modules}})"

    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "set()"
