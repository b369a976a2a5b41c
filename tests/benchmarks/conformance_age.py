"""Adapter of the conformance kit for a gateway of ours of any age, whose records its own command line exports.

``--records conformance_age:open_gateway`` with the gateway's environment (AGENT_LAYER_DIR, …), and KIT_TREE: the
checkout of that age.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_layer.conformance import RecordedAnswer, RolloutAdapter, read_shown_step

__all__ = ["open_gateway"]


class AgeAdapter(RolloutAdapter):
    """Reads all trajectories with one command of the gateway's own age."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, key, lambda _: ())

    def read_records(self) -> Iterator[RecordedAnswer]:
        """See CaptureAdapter."""
        list(super().read_records())  # ends the rollouts
        with TemporaryDirectory() as directory:
            out = Path(directory) / "all.jsonl"
            command = [sys.executable, "-m", "agent_layer.cli", "store", "export", "jsonl", str(out), "--any"]
            tree = os.environ["KIT_TREE"]
            subprocess.run(command, env={**os.environ, "PYTHONPATH": tree}, cwd=directory, check=True)
            for line in out.read_text().rstrip("\n").split("\n"):
                yield from map(read_shown_step, json.loads(line)["steps"])


def open_gateway(url: str, key: str) -> AgeAdapter:
    """Return the adapter."""
    return AgeAdapter(url, key)
