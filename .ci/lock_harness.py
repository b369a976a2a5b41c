"""Locks of harnesses, with hashes and without addresses, written from their declarations.

    python .ci/lock_harness.py NAME …    write envs/harnesses/locks/NAME

npm resolves a package into ``package-lock.json``. Optional packages that the registry lacks, builds for other machines
among them, come from the lock before if it has the same version of them; else they leave the lock, or ``npm ci`` would
refuse it, and ``package.json`` names them. uv resolves a PyPI package for its interpreter; the lock keeps what Linux
and macOS install.
"""

import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from packaging.markers import Marker

from envs.harnesses import Harness, find_harness

_PLATFORMS = ("linux_x86_64", "linux_aarch64", "macosx_11_0_arm64", "universal2", "any")
_NOTE = "# Written by .ci/lock_harness.py: hashes of what Linux and macOS install.\n"


def lock_npm(harness: Harness) -> None:
    """Write ``package.json`` and ``package-lock.json``."""
    folder = harness.lock_folder
    folder.mkdir(parents=True, exist_ok=True)
    package: dict[str, Any] = {"private": True, "dependencies": {harness.package: harness.version}}
    with TemporaryDirectory() as temporary:
        (Path(temporary) / "package.json").write_bytes(msgspec.json.encode(package))
        options = ["--package-lock-only", "--no-audit", "--no-fund", "--omit-lockfile-registry-resolved"]
        subprocess.run(["npm", "install", *options], cwd=temporary, check=True)
        lock = msgspec.json.decode((Path(temporary) / "package-lock.json").read_bytes())
    lock["name"] = harness.name
    place = folder / "package-lock.json"
    before = msgspec.json.decode(place.read_bytes())["packages"] if place.exists() else {}
    if lacks := complete_packages(lock["packages"], before):
        package["lacks"] = lacks
        print(f"{harness.name}: the registry lacks {', '.join(lacks)}; its lock is without them")
    for path, content in ((place, lock), (folder / "package.json", package)):
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")


def complete_packages(packages: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Add optional packages that only the lock before has, and take out those that neither has.

    Args:
        packages: entries of ``package-lock.json`` by path; changed in place.
        before: entries of the lock before.

    Returns: names of the optional packages that were taken out, sorted.
    """
    lacks = set[str]()
    for path, entry in [*packages.items()]:
        optional = entry.get("optionalDependencies", {})
        for name, version in [*optional.items()]:
            places = [f"{path}/node_modules/{name}".removeprefix("/"), f"node_modules/{name}"]
            if any(place in packages for place in places):
                continue
            kept = next((place for place in places if before.get(place, {}).get("version") == version), None)
            if kept is None:
                lacks.add(name)
                del optional[name]
            else:
                packages[kept] = before[kept]
    return sorted(lacks)


def lock_pypi(harness: Harness) -> None:
    """Write ``requirements.txt``."""
    folder = harness.lock_folder
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary:
        out = Path(temporary) / "pylock.toml"
        command = ["uv", "pip", "compile", "-", "-q", "--universal", "--python-version", harness.python]
        asked = f"{harness.package}=={harness.version}\n"
        subprocess.run([*command, "--format", "pylock.toml", "-o", out], input=asked.encode(), check=True)
        packages = tomllib.loads(out.read_text())["packages"]
    lines = [line for package in packages if (line := _write_line(package, harness.python))]
    (folder / "requirements.txt").write_text(_NOTE + "".join(lines))


def _write_line(package: dict[str, Any], python: str) -> str:
    """Return the line of a package; empty where its marker excludes Linux."""
    known = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    known |= {"platform_system": "Linux", "platform_machine": "x86_64", "implementation_name": "cpython"}
    if "marker" in package and not Marker(package["marker"]).evaluate(
        known | {"platform_python_implementation": "CPython"}
    ):
        return ""
    files = [one for one in package.get("wheels", ()) if _is_kept(one, python.replace(".", ""))]
    files = files or [package["sdist"]]
    hashes = "".join(f" --hash=sha256:{one['hashes']['sha256']}" for one in files)
    return f"{package['name']}=={package['version']}{hashes}\n"


def _is_kept(wheel: dict[str, Any], python: str) -> bool:
    name = wheel.get("name") or wheel["url"].rpartition("/")[2]
    tag, abi, platform = name.removesuffix(".whl").split("-")[-3:]
    is_python = f"cp{python}" in tag or "py3" in tag or abi == "abi3"
    is_platform = any(one in platform for one in _PLATFORMS) or ("manylinux" in platform and "64" in platform[-7:])
    return is_python and is_platform and "musllinux" not in platform and "ppc64" not in platform


def main() -> int:
    """Write the locks of the named harnesses."""
    for name in sys.argv[1:]:
        harness = find_harness(name)
        (lock_npm if harness.installer == "npm" else lock_pypi)(harness)
    return 0


if __name__ == "__main__":
    sys.exit(main())
