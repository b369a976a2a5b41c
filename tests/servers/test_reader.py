"""The small bucket reader returns all records, without Redis and without this project."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from agent_layer.schema.codec import encode
from agent_layer.schema.ids import content_hash
from agent_layer.schema.rollout import AttemptStarted, Group
from agent_layer.schema.step import Content

READER = Path(__file__).parents[2] / "examples" / "read_bucket" / "reader.py"
ALONE = """
import runpy, sys
sys.modules["agent_layer"] = None
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
RECORDS = [
    AttemptStarted(trajectory_id="x.0-0", rollout_id="x.0", attempt=0, run="r", task_id="t", started_at=5.0),
    Content(trajectory_id="x.0-0", hash=content_hash(b'"hi"'), body=b'"hi"'),
]


@pytest.fixture
def read(objects_settings, tmp_path):
    """``read(*arguments)``: lines of the reader, run where nothing of this project can be imported."""

    def run(*arguments: str) -> list[str]:
        settings = objects_settings
        location = settings.objects_url or str(settings.dir / "objects")
        output = subprocess.run(
            [sys.executable, "-c", ALONE, str(READER), location, *arguments],
            env={
                "AWS_ENDPOINT_URL_S3": settings.s3_endpoint_url or "",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                "AWS_DEFAULT_REGION": "us-east-1",
            },
            cwd=tmp_path,
            capture_output=True,
            check=True,
            text=True,
        )
        return output.stdout.splitlines()

    return run


def test_the_reader_lists_what_segments_hold(write, read):
    name = write(*RECORDS, Group(group_id="g", run="r", task_id="t", closed_at=1.0))

    [line] = read()

    assert line.split()[0].endswith(f"{name}.seg")
    assert line.split()[1:] == ["x.0-0", "group:g"]


def test_the_reader_gives_each_record_of_a_trajectory_once(write, read):
    write(*RECORDS)
    write(RECORDS[0])

    lines = read("x.0-0")

    assert [json.loads(line)["type"] for line in lines] == ["attempt_started", "content"]
    assert json.loads(lines[0]) == msgspec.msgpack.decode(encode(RECORDS[0]))
