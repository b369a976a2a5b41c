"""Memory of ``ingest``: what bodies become is bounded and counted while they are unpacked, however they are packed."""

import asyncio
import gc
import gzip
import json
import threading
import weakref
import zlib
from random import Random

import pytest
import zstandard
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given, strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agent_layer.errors import BackPressureError, BadInputError
from agent_layer.ingest.app import build_app
from agent_layer.ingest.http import REFUSALS, HeldBytes, IngestMemory, run_in_thread, unpack
from agent_layer.recorder import Recorder
from agent_layer.recorder.frames import frame
from agent_layer.schema.codec import encode
from agent_layer.schema.ids import new_id
from agent_layer.schema.step import Content

MEGABYTE = 1 << 20
KEY = {"x-api-key": "ingest-key"}
MAX_SECONDS = 600


def bare_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


def zstd_of_unknown_size(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(body)


PACKERS = {
    "gzip": ("gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "bare deflate": ("deflate", bare_deflate),
    "zstd": ("zstd", zstandard.compress),
    "zstd of unknown size": ("zstd", zstd_of_unknown_size),
}
packings = pytest.mark.parametrize(("coding", "pack"), PACKERS.values(), ids=PACKERS.keys())


@packings
@given(parts=st.lists(st.binary(min_size=1, max_size=300_000), min_size=1, max_size=4))
def test_what_is_packed_in_any_number_of_members_comes_out_whole_and_is_counted(coding, pack, parts):
    if pack is bare_deflate:
        parts = parts[:1]  # a second one could not be distinguished from the first one's end
    memory = IngestMemory(MEGABYTE)

    with memory.hold() as held:
        assert unpack(b"".join(map(pack, parts)), coding, "body", 4 * MEGABYTE, held) == b"".join(parts)
        assert memory.num_bytes == sum(map(len, parts))
    assert memory.num_bytes == 0


@packings
@given(cut=st.integers(0, 10_000), tail=st.sampled_from([b"", b"more", bytes(9)]))
def test_what_is_cut_off_or_has_something_behind_it_is_refused(coding, pack, cut, tail):
    packed = pack(Random(cut).randbytes(9_000))
    broken = packed + tail if tail else packed[: cut % len(packed)]

    with IngestMemory(MEGABYTE).hold() as held, pytest.raises(BadInputError, match=f"no whole {coding} body"):
        unpack(broken, coding, "body", MEGABYTE, held)


@packings
def test_a_body_beside_others_is_unpacked_only_while_there_is_room(coding, pack):
    memory, bomb = IngestMemory(8 * MEGABYTE), pack(bytes(16 * MEGABYTE))
    assert len(bomb) < MEGABYTE // 8

    with memory.hold() as other, memory.hold() as held:
        other.grow(5 * MEGABYTE)
        with pytest.raises(BackPressureError):
            unpack(bomb, coding, "body", 16 * MEGABYTE, held)
        assert memory.num_bytes <= 8 * MEGABYTE
    with memory.hold() as alone, pytest.raises(web.HTTPRequestEntityTooLarge):
        unpack(bomb, coding, "body", 15 * MEGABYTE, alone)


def test_bodies_of_many_members_cost_no_time():
    with IngestMemory(MEGABYTE).hold() as held, pytest.raises(BadInputError, match="more than 1024 members"):
        unpack(gzip.compress(b"") * 100_000, "gzip", "body", MEGABYTE, held)


def test_a_request_that_ended_stops_its_unpacking():
    memory = IngestMemory(MEGABYTE)
    with memory.hold() as held:
        held.grow(5)
    with pytest.raises(BackPressureError):
        held.grow(5)
    assert memory.num_bytes == 0


OPERATION, MODEL = "gen_ai.operation.name", "gen_ai.request.model"


def otlp(num_bytes: int) -> bytes:
    """A request of one span: a step whose model has a long name."""
    request = ExportTraceServiceRequest()
    span = (
        request.resource_spans.add()
        .scope_spans.add()
        .spans.add(
            trace_id=bytes([1] * 16), span_id=bytes([1] * 8), name="chat", start_time_unix_nano=1, end_time_unix_nano=2
        )
    )
    for key, value in ((OPERATION, "chat"), (MODEL, "x" * num_bytes)):
        span.attributes.add(key=key).value.string_value = value
    return request.SerializeToString()


def otlp_json(num_bytes: int) -> bytes:
    facts = {OPERATION: "chat", MODEL: "x" * num_bytes}
    span = {"traceId": "01" * 16, "spanId": "01" * 8, "name": "chat", "startTimeUnixNano": 1, "endTimeUnixNano": 2}
    span["attributes"] = [{"key": key, "value": {"stringValue": value}} for key, value in facts.items()]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def log(num_bytes: int) -> bytes:
    return frame(encode(Content(trajectory_id="r.0-0", hash=new_id(), body=b"x" * num_bytes)))


BODIES = [
    (otlp, {"content-type": "application/x-protobuf", "content-encoding": "gzip"}, "with length"),
    (otlp, {"content-type": "application/x-protobuf", "content-encoding": "zstd"}, "chunked"),
    (otlp_json, {"content-type": "application/json", "content-encoding": "deflate"}, "chunked"),
    (log, {"content-encoding": "gzip"}, "chunked"),
    (log, {"content-type": "application/zstd"}, "with length"),
    (log, {"content-type": "application/zstd", "content-encoding": "gzip"}, "chunked"),
]
UNPACKED_BYTES = 2 * MEGABYTE
NUM_AT_ONCE = 20
_PACK = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress}


async def send_in_pieces(body: bytes):
    """A body of unknown length."""
    yield body


class HeldRecorder(Recorder):
    """A recorder whose disk is slow: it begins to write only when it may."""

    def __init__(self, settings):
        super().__init__(settings)
        self.go_on, self.num_begun = threading.Event(), 0

    def append(self, *records):
        self._wait()
        return super().append(*records)

    def append_encoded(self, contents):
        self._wait()
        return super().append_encoded(contents)

    def _wait(self):
        self.num_begun += 1
        assert self.go_on.wait(MAX_SECONDS)


@pytest.mark.parametrize(("make", "headers", "length"), BODIES)
async def test_many_small_bodies_that_become_large_take_no_more_than_the_setting(
    settings, make, headers, length, until
):
    limits = {"ingest_bytes": 2 * UNPACKED_BYTES, "max_body_bytes": 2 * UNPACKED_BYTES, "ingest_seconds": 0.01}
    settings = settings.model_copy(update=limits | {"ingest_key": "ingest-key"})
    recorder = HeldRecorder(settings)
    app = TestServer(build_app(settings, recorder))
    await app.start_server(auto_decompress=False)
    is_unpacked_in_turn = headers.get("content-type") == "application/zstd"
    body = zstandard.compress(make(UNPACKED_BYTES)) if is_unpacked_in_turn else make(UNPACKED_BYTES)
    body = _PACK.get(headers.get("content-encoding"), bytes)(body)
    assert len(body) < UNPACKED_BYTES / 100
    answers = []

    async def send(client: TestClient) -> None:
        path = f"/v1/logs/{settings.namespace}/{new_id()}-host-1" if make is log else "/v1/traces"
        sent = send_in_pieces(body) if length == "chunked" else body
        async with client.post(path, data=sent, headers=KEY | headers, skip_auto_headers=["content-type"]) as answer:
            answers.append((answer.status, b"expected room for another body" in await answer.read()))

    async with TestClient(app) as client, asyncio.TaskGroup() as sending:
        sending.create_task(send(client))
        await until(lambda: recorder.num_begun)
        for _ in range(1, NUM_AT_ONCE):
            sending.create_task(send(client))
        if not is_unpacked_in_turn:
            await until(lambda: len(answers) == NUM_AT_ONCE - 1)
        early = answers.copy()
        recorder.go_on.set()
    assert len(early) == (0 if is_unpacked_in_turn else NUM_AT_ONCE - 1), "no other one fits beside the first"
    assert {*early} <= {(503, True)}
    recorder.close()


@pytest.fixture
def without_collection():
    """No garbage collection: what is in a cycle stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def living() -> list[HeldBytes]:
    """Counts of requests that a frame, an exception or a cycle still has; the frames that hold pieces have one, too."""
    return [one for one in gc.get_objects() if isinstance(one, HeldBytes)]


STATUSES = {"too long": 413, "no room": 503, "cut off": 400, "something else": 400, "accepted": 200}


async def send_until(end: asyncio.Event):
    """A body whose end comes late."""
    yield b"begin"
    await end.wait()


async def post(client: TestClient, path: str, body, headers: dict[str, str]) -> int:
    """Send a body; return the status of the answer."""
    async with client.post(path, data=body, headers=KEY | headers, skip_auto_headers=["content-type"]) as answer:
        return answer.status


@pytest.mark.usefixtures("without_collection")
@pytest.mark.parametrize(("make", "headers", "length"), BODIES)
@pytest.mark.parametrize("refusal", STATUSES)
async def test_a_request_that_was_answered_leaves_nothing_for_the_garbage_collection(
    settings, make, headers, length, refusal, until
):
    limits = {
        "max_body_bytes": MEGABYTE if refusal == "too long" else 4 * MEGABYTE,
        "ingest_bytes": MEGABYTE if refusal == "no room" else 4 * MEGABYTE,
    }
    settings = settings.model_copy(update=limits | {"ingest_seconds": 0.01, "ingest_key": "ingest-key"})
    recorder = Recorder(settings)
    server = TestServer(build_app(settings, recorder))
    await server.start_server(auto_decompress=False)
    body = make(UNPACKED_BYTES) if refusal != "something else" else b"nothing of this kind" * 9
    for coding in (headers.get("content-type"), headers.get("content-encoding")):
        body = zstandard.compress(body) if coding == "application/zstd" else _PACK.get(coding, bytes)(body)
    body = body[:-9] if refusal == "cut off" else body
    path = f"/v1/logs/{settings.namespace}/{new_id()}-host-1" if make is log else "/v1/traces"
    rest = asyncio.Event()
    async with TestClient(server) as client, asyncio.TaskGroup() as sending:
        if refusal == "no room":  # beside one that is still being sent
            sending.create_task(post(client, path, send_until(rest), headers))
            await until(living)
        others = {*map(id, living())}
        sent = send_in_pieces(body) if length == "chunked" else body
        status = await post(client, path, sent, headers)
        assert status == (503 if make is log and refusal == "accepted" else STATUSES[refusal])
        await until(lambda: {*map(id, living())} == others)  # a thread ends its work a moment after it said so
        rest.set()
    recorder.close()


def cut_off(packed: bytes) -> tuple[bytes, int, int]:
    return packed[:-9], 0, 4 * MEGABYTE


def too_long(packed: bytes) -> tuple[bytes, int, int]:
    return packed, 0, MEGABYTE // 2


def beside_others(packed: bytes) -> tuple[bytes, int, int]:
    return packed, 4 * MEGABYTE, 4 * MEGABYTE


@packings
@pytest.mark.usefixtures("without_collection")
@pytest.mark.parametrize("refuse", [cut_off, too_long, beside_others])
async def test_an_error_of_a_thread_holds_nothing_of_the_body(coding, pack, refuse):
    packed, num_others, max_bytes = refuse(pack(bytes(MEGABYTE)))
    memory, holders = IngestMemory(4 * MEGABYTE), []
    HeldBytes(memory).grow(num_others)

    def work() -> bytes:
        held = HeldBytes(memory)
        holders.append(weakref.ref(held))
        return unpack(packed, coding, "body", max_bytes, held)

    with pytest.raises(REFUSALS) as caught:
        await run_in_thread(work)
    assert [one() for one in holders] == [None], caught


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "gzip, deflate", "snappy"])
async def test_an_encoding_that_nothing_undoes_is_named(settings, coding):
    settings = settings.model_copy(update={"ingest_key": "ingest-key"})
    recorder = Recorder(settings)
    server = TestServer(build_app(settings, recorder))
    await server.start_server(auto_decompress=False)
    headers = KEY | {"content-type": "application/json", "content-encoding": coding}
    async with (
        TestClient(server) as client,
        client.post("/v1/traces", data=gzip.compress(gzip.compress(b"{}")), headers=headers) as answer,
    ):
        assert answer.status == 400
        assert f"gzip or deflate or zstd, found '{coding}'" in await answer.text()
    recorder.close()


async def test_a_server_that_unpacks_bodies_itself_serves_ingest_too(settings):
    recorder = Recorder(settings.model_copy(update={"ingest_key": "ingest-key"}))
    app = TestServer(build_app(settings.model_copy(update={"ingest_key": "ingest-key"}), recorder))
    headers = KEY | {"content-type": "application/x-protobuf", "content-encoding": "gzip"}

    async with (
        TestClient(app) as client,
        client.post("/v1/traces", data=gzip.compress(otlp(9)), headers=headers) as got,
    ):
        assert got.status == 200
    recorder.close()
