"""Contracts for import-linter that know faces: a name that a face hands on counts as an import of its file."""

import ast
from functools import cache

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from write_faces import PACKAGES, folder_of, list_rooms, read_face, room_of


class FaceContract(Contract):
    """Between rooms every import names a face; inside a room every import names a file.

    Two exemptions: files directly under a root package may be imported by all of that root package, and those of
    ``agent_layer`` (errors, times, lazy, otel_names) by everyone, because they are rooms of one file.
    """

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: FBT001, ARG002  # the linter's own signature
        """Collect all imports past a face, and those of a room's own face."""
        wrong = [
            (importer, imported)
            for importer in graph.modules
            for imported in graph.find_modules_directly_imported_by(importer)
            if not graph.is_module_squashed(imported) and not _is_allowed(importer, imported)
        ]
        return ContractCheck(kept=not wrong, metadata={"wrong": sorted(wrong)})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each such import, and what to import instead."""
        for importer, imported in check.metadata["wrong"]:
            room = room_of(imported)
            advice = (
                "import its file" if room_of(importer) == room else f"import from {room}, and list the name in its face"
            )
            output.print_error(f"{importer} imports {imported}; {advice}")


class _ThroughFaces(Contract):
    """A contract whose graph has, for each name that a face hands on, an import of the file that defines it."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: FBT001  # the linter's own signature
        for importer, home in _imports_through_faces():
            if importer in graph.modules and home in graph.modules:
                graph.add_import(importer=importer, imported=home)
        return super().check(graph, verbose)


class Layers(_ThroughFaces, LayersContract):
    """Layers."""


class Forbidden(_ThroughFaces, ForbiddenContract):
    """Forbidden imports."""


class AcyclicSiblings(_ThroughFaces, AcyclicSiblingsContract):
    """No circles."""


def _is_allowed(importer: str, imported: str) -> bool:
    room, root = room_of(imported), imported.partition(".")[0]
    if room == imported:
        return room_of(importer) != room or importer == room
    if room_of(importer) == room:
        return True
    return room == root and root in {"agent_layer", importer.partition(".")[0]}


@cache
def _imports_through_faces() -> frozenset[tuple[str, str]]:
    """Return each file, with the file that defines a name that it imports from a face."""
    found: set[tuple[str, str]] = set()
    for path in (path for package in PACKAGES for path in folder_of(package).rglob("*.py")):
        module = ".".join(path.relative_to(folder_of("agent_layer").parent).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module in list_rooms():
                homes = (_home_of(node.module, one.name) for one in node.names)
                found |= {(module.removesuffix(".__init__"), home) for home in homes if home}
    return frozenset(found)


def _home_of(package: str, name: str) -> str | None:
    """Return the file behind a name of a face; faces may hand on names of others."""
    face = read_face(package)
    home = {**face.public, **face.internal}.get(name) if face else None
    return _home_of(home, name) if home in list_rooms() else home
