"""The kit of wheels for a machine with a GPU: Ray without its servers, and nothing that is required is missing."""

from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ...gpu import kit

RAY = {
    "ray/__init__.py": b"import ray._raylet",
    "ray/_raylet.so": b"\x7fELF" * 9,
    "ray/core/generated/ray_pb2.py": b"x = 1",
    "ray/core/src/ray/raylet/raylet": b"\x7fELF" * 99,
    "ray/jars/ray_dist.jar": b"PK" * 99,
    "ray/dashboard/client/build/index.html": b"<html>",
    "ray/dashboard/consts.py": b"y = 2",
    "ray-2.60.0.dist-info/METADATA": b"Name: ray\nRequires-Dist: click>=7\nRequires-Dist: lost; extra == 'a'\n",
}
DROPPED = {"ray/core/src/ray/raylet/raylet", "ray/jars/ray_dist.jar", "ray/dashboard/client/build/index.html"}


def write_wheel(path: Path, files: dict[str, bytes]) -> Path:
    record = f"{path.name.split('-')[0]}-2.60.0.dist-info/RECORD"
    with ZipFile(path, "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
        wheel.writestr(record, "".join(f"{name},sha256=x,1\n" for name in files) + f"{record},,\n")
    return path


def test_ray_keeps_what_is_imported_and_loses_its_servers(tmp_path):
    path = write_wheel(tmp_path / "ray-2.60.0-cp312-cp312-manylinux2014_x86_64.whl", RAY)

    kit.thin_ray(path)

    with ZipFile(path) as thin:
        kept = {name: thin.read(name) for name in thin.namelist()}
    record = kept.pop("ray-2.60.0.dist-info/RECORD").decode().splitlines()
    assert kept == {name: content for name, content in RAY.items() if name not in DROPPED}
    assert {line.split(",")[0] for line in record} == {*kept, "ray-2.60.0.dist-info/RECORD"}
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def whole_kit(tmp_path):
    """A wheel of each pin; none requires anything."""
    for pin in map(Requirement, kit.PINS.read_text().splitlines()):
        version = next(iter(pin.specifier)).version
        path = tmp_path / f"{canonicalize_name(pin.name).replace('-', '_')}-{version}-py3-none-any.whl"
        write_wheel(path, {f"{pin.name}-{version}.dist-info/METADATA": b"Name: x\n"})
    return tmp_path


def test_what_this_project_requires_is_in_the_kit_or_on_the_machine(whole_kit):
    assert list(kit.find_gaps(whole_kit)) == []


def test_a_kit_without_what_a_wheel_requires_is_refused(whole_kit):
    metadata = (
        b"Name: x\nRequires-Dist: lost>=2\nRequires-Dist: numpy\nRequires-Dist: msgspec>=99; python_version > '3.11'\n"
    )
    old = next(whole_kit.glob("xxhash-*.whl"))
    write_wheel(old, {f"{old.stem}.dist-info/METADATA": metadata})

    lost, msgspec = kit.find_gaps(whole_kit)
    assert "xxhash: expected lost>=2 in the kit" in lost
    assert "xxhash: expected msgspec>=99" in msgspec


def test_a_kit_that_is_too_large_is_refused(whole_kit, monkeypatch):
    monkeypatch.setattr(kit, "MAX_BYTES", 1000)

    assert next(kit.find_gaps(whole_kit)).startswith("expected at most 0.001 MB")


def test_a_kit_without_a_pinned_wheel_is_refused(whole_kit):
    next(whole_kit.glob("verl-*.whl")).unlink()

    assert any("expected verl==0.9.1 in the kit" in one for one in kit.find_gaps(whole_kit))
