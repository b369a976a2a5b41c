"""Over 5,000 calls while every part is killed and frozen at random: no answered call is lost, none is stored twice."""

import sys
from pathlib import Path

import pytest

from ..waiting import run

STORM = Path(__file__).parent / "storm"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("objects", ["directory", "s3"])
def test_nothing_is_lost_and_nothing_is_there_twice(tmp_path, objects):
    command = [sys.executable, str(STORM), str(tmp_path), "--calls=2600", "--seconds=45"]
    storm = run([*command, *(["--s3"] if objects == "s3" else [])], 1200)

    assert storm.returncode == 0, storm.stdout[-6000:] + storm.stderr[-4000:]
    counts = {what: int(number) for number, what in (line.split(maxsplit=1) for line in storm.stdout.splitlines()[:-1])}
    assert counts["calls begun by the engine"] >= 2600
    assert counts["steps aborted"] > 0
    assert counts["tokens trained"] > 0
