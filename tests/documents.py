"""Documents of this repository, and the fenced blocks in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
"""In the order in which their programs run."""


def blocks(language: str) -> list[tuple[str, str]]:
    """(document, text) of each fenced block in a language."""
    found = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [(str(path.relative_to(ROOT)), text) for path in DOCUMENTS for text in found.findall(path.read_text())]
