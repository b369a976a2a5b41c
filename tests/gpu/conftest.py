"""What the proofs share: a tiny model, what was measured on this machine, and a line for each figure with its verdict.

Nothing here needs what tests elsewhere need, so that the proofs run from the kit (``tests/gpu/run.py``).
"""
# ruff: noqa: PLC0415  # torch takes seconds to import

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from trainer_adapter.evidence.collect import Place, collect
from trainer_adapter.evidence.records import Evidence

Report = Callable[[str, str, bool], None]
"""``report(figure, bound, holds)``: print the line, and fail where it does not hold."""
MINUTES = 8


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a tiny model with random weights."""
    from trainer_adapter.demo.model import write_model

    directory = tmp_path_factory.mktemp("model")
    write_model(directory, seed=0)
    return directory


@pytest.fixture(scope="session")
def has_gpu() -> bool:
    """Whether torch finds one."""
    import torch

    return torch.cuda.is_available()


@pytest.fixture(scope="session")
def evidence(
    has_gpu: bool,  # noqa: FBT001  # a fixture
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Evidence:
    """Figures of ``GPU_EVIDENCE``, a file of 'agent-layer verify-cluster'; else they are measured now."""
    if path := os.environ.get("GPU_EVIDENCE"):
        return msgspec.json.decode(Path(path).read_bytes(), type=Evidence)
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        show = partial(print, flush=True)
        return collect(Place(), tmp_path_factory.mktemp("logs"), MINUTES * 60, show, is_rehearsal=not has_gpu)


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Report:
    """``report``."""

    def report(figure: str, bound: str, holds: bool) -> None:  # noqa: FBT001
        proof = request.node.name.removeprefix("test_").replace("_", " ")
        line = f"{'holds' if holds else 'FAILS':<6} {proof}: {figure}; expected {bound}"
        with capsys.disabled():
            print(f"\n{line}")  # noqa: T201
        assert holds, line

    return report
