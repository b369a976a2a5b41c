"""Without a Redis server nothing is lost, nothing waits, and stderr says once what is missing."""

import os
import sys

from ...waiting import run

PROGRAM = """
import tracer

tracer.init(dir="data", redis_server="no-such-program", flush_seconds=3600.0)
for _ in range(2):
    with tracer.rollout(task="t"):
        pass
    print(tracer.flush())
"""


def test_flush_says_what_is_missing_and_keeps_the_records(tmp_path):
    variables = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_LAYER_")}

    ended = run([sys.executable, "-c", PROGRAM], cwd=tmp_path, env=variables)  # within far less than flush_seconds

    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("tracer.flush:") == 1
    assert "'no-such-program'; correct AGENT_LAYER_REDIS_SERVER or unset it" in ended.stderr
    assert "records wait in" in ended.stderr
    first, second = ended.stdout.splitlines()
    assert "lost=0" in first
    assert "lost=0" in second
    assert "pending=0" not in ended.stdout
    assert list((tmp_path / "data").rglob("*.log"))
