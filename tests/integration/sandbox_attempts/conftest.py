"""Attempts with sandboxes: a worker with its supervisor, and a kind whose boxes fail as often as asked."""

import os
import sys

import pytest

from envs.sandbox import SandboxSpec

from ..worker.conftest import client, harness, make_task

__all__ = ["client", "harness", "make_task"]

SPEC = SandboxSpec(kind="process")
"""Works on every machine; what a kind stops is tested elsewhere."""

FAULTY = '''
"""Kind ``faulty``: boxes of kind ``process``; some starts fail, and some commands lose their box."""

import random
from agent_layer.errors import SandboxError
from agent_layer.schema.sandbox import ExecResult
from envs.sandbox import make_kind

CHANCE = {chance}

class FaultyKind:
    name, isolation, cost, stops = "faulty", "none", 99, "Nothing; for tests."

    def __init__(self):
        self.behind = make_kind("process")
        self.random = random.Random(1)

    async def probe(self):
        return await self.behind.probe()

    async def start(self, spec, *, owner):
        if self.random.random() < CHANCE:
            raise SandboxError("sandbox: no room, as the test asks")
        box = await self.behind.start(spec, owner=owner)
        run = box.exec

        async def exec(argv, **options):
            if self.random.random() < CHANCE or argv[0] == "lose this box":
                await box.close()
                return ExecResult(status="gone", truncated=True)
            return await run(argv, **options)

        box.exec = exec
        return box

    async def close(self):
        await self.behind.close()
'''
ENTRY_POINTS = "[agent_layer.sandboxes]\nfaulty = faulty_kind:FaultyKind\n"


@pytest.fixture(name="task")
def _task():
    def make(name="t", **fields):
        return make_task(name, **{"sandbox": SPEC, **fields})

    return make


@pytest.fixture
def module(tmp_path, monkeypatch):
    """``module(name, text)`` writes a module that hosts and supervisors find too."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))

    def write(name, text):
        (folder / f"{name}.py").write_text(text)
        sys.modules.pop(name, None)
        return folder

    return write


@pytest.fixture
def faulty(module):
    """``faulty(chance)`` registers the kind as an installed package does; returns a spec of it."""

    def register(chance):
        installed = module("faulty_kind", FAULTY.format(chance=chance)) / "faulty-1.dist-info"
        installed.mkdir()
        (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1\n")
        (installed / "entry_points.txt").write_text(ENTRY_POINTS)
        return SandboxSpec(kind="faulty")

    return register
