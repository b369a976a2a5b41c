"""The machine of the proofs, and how they report: a line for each figure, with its verdict."""
# ruff: noqa: PLC0415  # torch takes seconds to import

from collections.abc import Callable
from typing import NamedTuple

import pytest

Report = Callable[[str, str, bool], None]
"""``report(figure, bound, holds)``: print the line, and fail where it does not hold."""


class Machine(NamedTuple):
    """What the proofs run on."""

    device: str
    name: str
    num_bytes: int
    """Memory of the GPU; 0 without one."""

    @property
    def is_gpu(self) -> bool:
        """Whether sizes are those of a GPU."""
        return self.device == "cuda"


@pytest.fixture(scope="session")
def machine() -> Machine:
    """The GPU that torch finds, else the CPU."""
    import torch

    if not torch.cuda.is_available():
        return Machine("cpu", "no GPU found by torch: small sizes on the CPU, times and memory mean nothing", 0)
    found = torch.cuda.get_device_properties(0)
    return Machine("cuda", found.name, found.total_memory)


@pytest.fixture(autouse=True, scope="module")
def _head(machine: Machine, request: pytest.FixtureRequest) -> None:
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\nproofs on {machine.name}")  # noqa: T201


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
