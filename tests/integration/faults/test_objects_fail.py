"""Object stores under faults: bytes that change in transit, full disks, expired credentials."""

import subprocess
import sys

import boto3
import pytest

from agent_layer.errors import UnreachableError
from agent_layer.infra.objects.filesystem import open_objects

from .conftest import patient


@pytest.fixture
def seaweedfs(settings, seaweedfs_endpoint, make_proxy):
    """(settings, proxy): objects in SeaweedFS, which knows checksums, behind a proxy."""
    host, _, port = seaweedfs_endpoint.removeprefix("http://").partition(":")
    proxy = make_proxy((host, int(port)))
    url = f"s3://tests/{settings.namespace}"
    return settings.model_copy(update={"objects_url": url, "s3_endpoint_url": proxy.url, "retry_seconds": 3.0}), proxy


def test_an_object_that_arrives_changed_is_not_taken(seaweedfs):
    settings, proxy = seaweedfs
    objects = open_objects(settings)
    proxy.mood = "garbles"

    with pytest.raises(UnreachableError, match="expected to store 'key'"):
        objects.put("key", b"some payload")
    proxy.mood = None
    assert list(open_objects(patient(settings)).list("")) == []


def test_an_object_that_is_read_changed_is_read_again(seaweedfs):
    settings, proxy = seaweedfs
    objects = open_objects(patient(settings))
    objects.put("key", b"some payload")
    proxy.mood, proxy.num_spoils_left = "garbles", 1

    assert objects.get("key") == b"some payload"
    assert proxy.num_spoiled == 1


@pytest.mark.parametrize(("wanted", "is_sent"), [(None, True), ("when_required", False)])
def test_a_server_that_knows_no_checksums_is_sent_none_when_told_so(s3_settings, proxy, monkeypatch, wanted, is_sent):
    if wanted:
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", wanted)

    open_objects(patient(s3_settings)).put("key", b"some payload")

    assert open_objects(patient(s3_settings)).get("key") == b"some payload"
    assert any(b"x-amz-checksum-crc32" in request.lower() for request in proxy.heads) == is_sent


def test_credentials_that_were_replaced_in_their_file_are_read_again(s3_settings, proxy, tmp_path, monkeypatch):
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = old\naws_secret_access_key = old\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    objects = open_objects(patient(s3_settings))
    objects.put("key", b"")
    proxy.mood, proxy.num_spoils_left = "has forgotten who we are", 1
    file.write_text("[default]\naws_access_key_id = new\naws_secret_access_key = new\n")

    objects.put("key", b"")

    assert [b"Credential=new/" in head for head in proxy.heads] == [False, False, True]


FILL = """
import resource, sys
from agent_layer.errors import UnreachableError
from agent_layer.settings import Settings
from agent_layer.infra.objects.filesystem import open_objects
objects = open_objects(Settings(objects_url=sys.argv[1]))
objects.put("a/small", b"x")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    objects.put("a/large", bytes(2000))
except UnreachableError as error:
    print(error)
"""


def test_a_directory_that_is_full_says_so_and_keeps_no_half_of_an_object(tmp_path):
    """Simulate a full disk by a limit on file sizes: the same write fails in the same place."""
    command = [sys.executable, "-c", FILL, tmp_path.as_uri()]

    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "expected to store 'a/large', found 'File too large'" in output
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["small"]
