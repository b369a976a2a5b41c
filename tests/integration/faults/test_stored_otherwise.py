"""S3 servers that store other bytes than they were sent, or refuse them: no log goes, and its writer reads why."""

import threading
from contextlib import closing
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import permutations

import pytest

from agent_layer.cli.services.doctor import _look_at_objects
from agent_layer.errors import UnreachableError
from agent_layer.infra.objects.filesystem import open_objects
from agent_layer.recorder import open_recorder
from agent_layer.schema.step import Content

from ...waiting import join, scaled


def digest(body):
    return md5(body).hexdigest()


def keep_frames(body):
    """What a server keeps that knows no chunks: the body between its length and its checksum."""
    return b"%x\r\n%s\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n" % (len(body), body)


WAYS = {  # what is stored of a body, and the ETag that is answered
    "honest": (bytes, digest),
    "frames": (keep_frames, digest),
    "frames, no digest": (keep_frames, lambda _: ""),
    "frames, odd digest": (keep_frames, lambda _: "5-1"),
    "odd digest": (bytes, lambda body: digest(body + b"encrypted")),
    "no digest": (bytes, lambda _: ""),
    "cut off": (lambda body: body[:-1], digest),
    "nothing": (lambda _: b"", digest),
}
WHOLE = {"honest", "odd digest", "no digest"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    way, objects, status, num_reads = WAYS["honest"], {}, 200, 0

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        store, make_etag = self.way
        self.objects[self.path] = stored = store(body)
        self._answer(self.status, b"", etag=f'"{make_etag(stored)}"')

    def do_GET(self):
        if "list-type=2" in self.path:  # of tombstones and segments: none counts here
            return self._answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
        type(self).num_reads += 1
        body = self.objects.get(self.path)
        return self._answer(404 if body is None else 200, body or b"<Error><Code>NoSuchKey</Code></Error>")

    def do_DELETE(self):
        self.objects.pop(self.path, None)
        self._answer(204, b"")

    def _answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in (headers | {"content-length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(settings, monkeypatch):
    """(settings, handler): objects on an S3 server that behaves as ``handler.way`` and ``handler.status`` say."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "here")
    handler = type("Handler", (_Handler,), {"objects": {}})
    served = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    place = {"objects_url": "s3://bucket", "s3_endpoint_url": f"http://127.0.0.1:{served.server_port}"}
    yield settings.model_copy(update=place | {"retry_seconds": 2.0}), handler
    served.shutdown()
    served.server_close()
    join(thread)


@pytest.mark.parametrize("way", WAYS)
def test_an_object_is_stored_only_if_its_bytes_are(server, way):
    settings, handler = server
    handler.way = WAYS[way]
    objects = open_objects(settings)

    for number in range(3):
        content = b"segment %d" % number
        if way in WHOLE:
            objects.put(f"key-{number}", content)
            assert objects.get(f"key-{number}") == content
        else:
            with pytest.raises(UnreachableError, match="AWS_REQUEST_CHECKSUM_CALCULATION=when_required"):
                objects.put(f"key-{number}", content)
    if way in WHOLE:
        assert handler.num_reads == 3 + (way != "honest")  # once for all, where digests are of another kind


@pytest.mark.parametrize("ways", [*permutations(sorted(WHOLE))], ids="-".join)
def test_a_bucket_that_begins_or_ends_to_encrypt_while_it_is_written_to_refuses_nothing(server, ways):
    """Its ETags are MD5s with its own key, and none with a key of KMS or of the customer."""
    settings, handler = server
    objects = open_objects(settings)
    for number, way in enumerate([*ways, *ways]):
        handler.way = WAYS[way]
        objects.put(f"key-{number}", b"%d" % number)

    assert handler.objects == {f"/bucket/key-{number}": b"%d" % number for number in range(6)}
    assert handler.num_reads == 1


def test_a_server_that_was_honest_is_compared_each_time(server):
    settings, handler = server
    objects = open_objects(settings)
    objects.put("key", b"one")
    handler.way = WAYS["frames"]

    with pytest.raises(UnreachableError, match="found other bytes stored"):
        objects.put("key", b"one")


def test_doctor_names_the_variable(server):
    settings, handler = server
    handler.way = WAYS["frames"]

    with pytest.raises(UnreachableError, match="AWS_REQUEST_CHECKSUM_CALCULATION=when_required"):
        _look_at_objects(settings)


@pytest.mark.parametrize(
    ("way", "status", "reason"),
    [
        ("frames", 200, "AWS_REQUEST_CHECKSUM_CALCULATION=when_required"),
        ("honest", 501, "AWS_REQUEST_CHECKSUM_CALCULATION=when_required"),
        pytest.param("honest", 401, "AWS_ENDPOINT_URL_S3 and the credentials"),
        pytest.param("honest", 403, "AWS_ENDPOINT_URL_S3 and the credentials", marks=pytest.mark.long),
        pytest.param("honest", 413, "AWS_ENDPOINT_URL_S3 and the credentials", marks=pytest.mark.long),
    ],
)
def test_a_writer_reads_why_its_records_wait_until_they_are_stored(server, wait_until, way, status, reason):
    settings, handler = server
    handler.way, handler.status = WAYS[way], status
    with closing(open_recorder(settings)) as recorder:
        name = recorder.append(Content(trajectory_id="r.0-0", hash="h", body=b"1"))
        wait_until(lambda: reason in (recorder.flush(0.0).error or ""))
        report = recorder.flush(0.0)
        assert (report.pending, report.lost) == (1, 0)
        assert list(settings.log_dir.glob(f"{name}*"))

        handler.way, handler.status = WAYS["honest"], 200
        report = recorder.flush(scaled(30))
        assert (report.pending, report.lost, report.error) == (0, 0, None)
        wait_until(lambda: not (settings.log_dir / "shipper.refusal").exists())
