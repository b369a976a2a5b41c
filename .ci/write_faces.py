"""Faces of rooms: what type checkers read, written from the tables in ``__init__.py``, and what is wrong with a table.

    python .ci/write_faces.py            write each __init__.pyi
    python .ci/write_faces.py --check    package and what is wrong; exit status 1 if anything is found

A room is a package or a folder directly inside one. Its face lists what other rooms import, and nothing else.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("agent_layer", "tracer", "trainer_adapter", "envs")
ROOMS_INSIDE_ROOMS = {
    "agent_layer.schema.sandbox": "documents give users this path",
    "envs.tasksets.harbor": "stored tasks name their scorer and their environment by this path",
    "envs.tasksets.repair": "stored tasks name their scorer and their environment by this path",
}
FOR_USERS = {
    *("agent_layer.dispatcher", "agent_layer.schema", "agent_layer.store", "tracer", "trainer_adapter"),
    *("envs", "envs.grading", "envs.harnesses", "envs.sandbox", "envs.tasksets", "envs.tools"),
    *("envs.tasksets.harbor", "envs.tasksets.repair"),
}
"""Users may import what is in ``__all__`` of these, whether a room does or not; tests hold these lists."""
NOTE = "# Written from the table in __init__.py by .ci/write_faces.py ('make format').\n"
WIDTH = 120
_PACKAGE = rf"((?:{'|'.join(PACKAGES)})(?:\.\w+)*)"
_IMPORT = re.compile(rf"\bfrom {_PACKAGE} import (\([^)]*\)|[^\n;\"'#]+)")
_PATH = re.compile(rf"(?<![\w./]){_PACKAGE}[.:](\w+)")


class Face(NamedTuple):
    """The names that a package offers, each to the module that defines it; a module may itself be a name."""

    public: Mapping[str, str]
    """In ``__all__``."""
    internal: Mapping[str, str]
    """Only for other rooms."""


def folder_of(package: str) -> Path:
    """Return the folder of a package."""
    return ROOT.joinpath(*package.split("."))


@cache
def list_rooms() -> frozenset[str]:
    """Return the packages that may have a face."""
    inside = {f"{one}.{path.parent.name}" for one in PACKAGES for path in (ROOT / one).glob("*/__init__.py")}
    return frozenset({*PACKAGES, *inside, *ROOMS_INSIDE_ROOMS})


@cache
def room_of(module: str) -> str:
    """Return the room that a module belongs to: the innermost."""
    while module not in list_rooms():
        module = module.rpartition(".")[0]
    return module


@cache
def read_face(package: str) -> Face | None:
    """Return the face of a package; None if it has none, or is a module."""
    path = folder_of(package) / "__init__.py"
    for node in ast.parse(path.read_text()).body if path.exists() else ():  # a moved folder leaves its bytecode
        match node:
            case ast.Assign(value=ast.Call(func=ast.Name(id="face"), args=[_, *tables])):
                public, internal = [*map(_homes, [package] * 2, [*tables, ast.Dict([], [])][:2])]
                return Face(public, internal)
            case _:
                pass
    return None


def _homes(package: str, table: ast.expr) -> dict[str, str]:
    homes: dict[str, str] = {}
    for home, names in ast.literal_eval(table).items():
        module = home if home.partition(".")[0] in PACKAGES else f"{package}.{home}"
        homes |= dict.fromkeys(names.split() or [home], module)
    return homes


def list_faces() -> dict[str, Face]:
    """Return each package that has a face."""
    inits = sorted(path for one in PACKAGES for path in (ROOT / one).rglob("__init__.py"))
    packages = [".".join(path.parent.relative_to(ROOT).parts) for path in inits]
    return {package: found for package in packages if (found := read_face(package)) is not None}


def write_stub(package: str, face: Face) -> str:
    """Return the text of ``__init__.pyi``."""
    names_of: dict[str, list[str]] = {}
    for name, module in sorted({**face.public, **face.internal}.items()):
        near = module.removeprefix(package) if module.startswith(f"{package}.") else module
        names_of.setdefault("." if module == f"{package}.{name}" else near, []).append(f"{name} as {name}")
    lines = [line for module in sorted(names_of) for line in _pack(f"from {module} import ", names_of[module])]
    exported = ["__all__ = [", *_pack("    ", [f'"{name}"' for name in sorted(face.public)], ","), "]"]
    return NOTE + "\n".join([*lines, *(exported if face.internal else [])]) + "\n"


def _pack(start: str, parts: Iterable[str], end: str = "") -> Iterator[str]:
    """Yield lines that hold as many parts as fit."""
    line = ""
    for part in parts:
        if line and len(line) + len(part) + len(end) + 2 > WIDTH:
            yield line + end
            line = ""
        line = f"{line}, {part}" if line else start + part
    yield line + end


def check_faces() -> Iterator[str]:
    """Yield faces where none belongs, stubs that differ, and names that do not exist or that no other room imports."""
    faces, uses = list_faces(), find_uses()
    for package, face in faces.items():
        if package not in list_rooms():
            yield f"{package}: has a face and lies inside a room; its siblings import files"
        stub = folder_of(package) / "__init__.pyi"
        if not stub.exists() or stub.read_text() != write_stub(package, face):
            yield f"{package}: expected __init__.pyi as its table says; run 'make format'"
        yield from (f"{package}: {wrong}" for wrong in _check_names(package, face, uses.get(package, set())))
    for path in sorted(path for one in PACKAGES for path in (ROOT / one).rglob("*.pyi")):
        if ".".join(path.parent.relative_to(ROOT).parts) not in faces:
            yield f"{path.relative_to(ROOT)}: expected a table in __init__.py beside it, found none"


def _check_names(package: str, face: Face, used: set[str]) -> Iterator[str]:
    for name, module in {**face.public, **face.internal}.items():
        if not _defines(module, name):
            yield f"lists {name} of {module}, which does not define it"
        if name not in used and not (package in FOR_USERS and name in face.public):
            yield f"lists {name}, which no other room, document or example imports"


def _defines(module: str, name: str) -> bool:
    if (folder_of(module) / "__init__.py").exists():
        face = read_face(module)
        return face is not None and name in {*face.public, *face.internal}
    path = folder_of(module).with_suffix(".py")
    return path.exists() and (module.endswith(f".{name}") or name in find_bound_names(path))


@cache
def find_bound_names(path: Path) -> frozenset[str]:
    """Return what a module, or anything in it, defines or imports; nothing is imported."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.alias(name=name, asname=asname):
                names.add(asname or name)
            case _:
                pass
    return frozenset(names)


def find_uses() -> dict[str, set[str]]:
    """Return the names of each face that other rooms, documents, examples, checks and entry points import."""
    uses: dict[str, set[str]] = {}
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for name in listed:
        path = ROOT / name
        if name.startswith("tests/") or path.suffix not in {".py", ".md", ".toml", ".yaml"} or not path.exists():
            continue
        module = ".".join(Path(name).with_suffix("").parts).removesuffix(".__init__")
        room = room_of(module) if name.startswith(tuple(f"{one}/" for one in PACKAGES)) else ""
        for package, used in uses_in(path.read_text(), room):
            uses.setdefault(package, set()).add(used)
    for room, face in list_faces().items():
        for name, module in {**face.public, **face.internal}.items():
            uses.setdefault(module, set()).add(name) if module != room else None
    return uses


def uses_in(text: str, room: str) -> Iterator[tuple[str, str]]:
    """Yield the face and the name of what a text imports from outside its room, or names by its path."""
    for package, imported in _IMPORT.findall(text):
        for name in re.findall(r"(\w+)(?: as \w+)?", re.sub(r"#.*", "", imported)):
            if package != room:
                yield package, name
            if f"{package}.{name}" in list_rooms():
                yield from ((f"{package}.{name}", used) for used in re.findall(rf"\b{name}\.(\w+)", text))
    yield from _PATH.findall(text)


def main() -> int:
    """Write the stubs, or print what is wrong; return the exit status."""
    if "--check" in sys.argv[1:]:
        findings = [*check_faces()]
        print(*findings, sep="\n", end="\n" if findings else "")
        return 1 if findings else 0
    for package, face in list_faces().items():
        (folder_of(package) / "__init__.pyi").write_text(write_stub(package, face))
    return 0


if __name__ == "__main__":
    sys.exit(main())
