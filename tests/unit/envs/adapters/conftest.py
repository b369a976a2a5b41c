"""A toy package in processes of its own."""

from pathlib import Path

import pytest

import envs.adapters.foreign_process
from envs.adapters.foreign_process import ForeignPackage, close_foreign
from envs.adapters.foreign_set import PACKAGES

HERE = Path(__file__).parent
GUESTS = Path(envs.adapters.foreign_process.__file__).with_name("guest")


@pytest.fixture
def toy(monkeypatch):
    package = ForeignPackage(
        "toy", "json", str(HERE / "toy_guest.py"), max_runs=8, variables={"PYTHONPATH": str(GUESTS)}
    )
    monkeypatch.setitem(PACKAGES, "toy", package)
    yield package
    close_foreign()
