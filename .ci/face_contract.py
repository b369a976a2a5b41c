"""Contract for import-linter: a module imports the face of another folder, never a file inside it."""

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output


class FaceContract(Contract):
    """Every import across folders names a package.

    Two exemptions: files directly under a root package may be imported by all of that root package, and those of
    ``agent_layer`` (errors, times, lazy, otel_names) by everyone, because they are rooms of one file.
    """

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: FBT001, ARG002  # the linter's own signature
        """Collect all imports past a face."""
        past_faces = [
            (importer, imported)
            for importer in graph.modules
            for imported in graph.find_modules_directly_imported_by(importer)
            if not graph.is_module_squashed(imported) and _is_past_face(graph, importer, imported)
        ]
        return ContractCheck(kept=not past_faces, metadata={"past_faces": sorted(past_faces)})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each import past a face, and the face to import instead."""
        for importer, imported in check.metadata["past_faces"]:
            folder = imported.rpartition(".")[0]
            output.print_error(f"{importer} imports {imported}; import from {folder}, and list the name in its face")


def _is_past_face(graph: ImportGraph, importer: str, imported: str) -> bool:
    if graph.find_children(imported):
        return False  # a package: its face
    folder, root = imported.rpartition(".")[0], imported.partition(".")[0]
    if _find_folder(graph, importer) == folder or importer == folder:
        return False
    return folder != root or (root != "agent_layer" and importer.partition(".")[0] != root)


def _find_folder(graph: ImportGraph, module: str) -> str:
    return module if graph.find_children(module) else module.rpartition(".")[0]
