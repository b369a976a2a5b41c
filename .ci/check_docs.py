"""Documents: links lead somewhere, paths that they name exist, lines keep their limits.

    python .ci/check_docs.py        file:line and what is wrong; exit status 1 if anything is

Standard library only.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = {"README.md": 150, "ARCHITECTURE.md": 200}
MAX_LINE_LENGTH = 160
PACKAGES = ("agent_layer", "tracer", "envs", "trainer_adapter", "examples", "tests", "docs", ".ci")
PROMISES = "## Promises"
"""Below this heading of ARCHITECTURE.md, paths begin in tests/."""
TEST_FOLDERS = ("unit", "integration", "servers", "soak", "job")

LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"(?:{'|'.join(map(re.escape, PACKAGES))})(?:/[\w.@-]+)+/?")


def list_documents() -> list[Path]:
    """Return all Markdown files that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", "*.md"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [path for path in (ROOT / name for name in sorted(set(filter(None, names)))) if path.is_file()]


def check_lines(path: Path, lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield lines that are too long, and documents that are."""
    most = MAX_LINES.get(path.relative_to(ROOT).as_posix())
    if most is not None and len(lines) > most:
        yield len(lines), f"expected at most {most} lines, found {len(lines)}"
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE_LENGTH:
            yield number, f"expected at most {MAX_LINE_LENGTH} characters, found {len(line)}"


def check_links(path: Path, lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield relative links without a target, and anchors without a heading."""
    for number, line in find_prose(lines):
        for target in LINK.findall(line):
            if target.startswith(("http://", "https://", "mailto:")):
                continue
            name, _, anchor = target.partition("#")
            found = (path.parent / name).resolve() if name else path
            if not found.exists():
                yield number, f"link {target}: there is no such file"
            elif anchor and anchor not in find_anchors(found):
                yield number, f"link {target}: there is no such heading"


def check_paths(path: Path, lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield paths in inline code that do not exist."""
    in_promises = False
    for number, line in find_prose(lines):
        if line.startswith("## "):
            in_promises = line.startswith(PROMISES)
        for code in CODE.findall(line):
            is_test = in_promises and path.name == "ARCHITECTURE.md" and code.split("/")[0] in TEST_FOLDERS
            named = f"tests/{code}" if is_test else code
            if PATH.fullmatch(named) and not (ROOT / named).exists() and not (ROOT / f"{named}.py").exists():
                yield number, f"path {named}: it does not exist"


def find_prose(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield numbered lines outside of fenced blocks."""
    is_code = False
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line


def find_anchors(path: Path) -> set[str]:
    """Return the anchors that a renderer makes of a document's headings."""
    headings = [
        line.lstrip("#").strip() for _, line in find_prose(path.read_text().splitlines()) if line.startswith("#")
    ]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_decisions() -> Iterator[tuple[int, str]]:
    """Yield decisions that the index does not list."""
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    for path in sorted(folder.glob("[0-9]*.md")):
        if f"({path.name})" not in index:
            yield 1, f"expected a row for {path.name}, found none"


def main() -> int:
    """Print what is wrong; return the exit status."""
    findings: list[str] = []
    for path in list_documents():
        lines = path.read_text().splitlines()
        for check in (check_lines, check_links, check_paths):
            findings += [f"{path.relative_to(ROOT)}:{number}: {problem}" for number, problem in check(path, lines)]
    findings += [f"docs/decisions/README.md:{number}: {problem}" for number, problem in check_decisions()]
    print(*findings, sep="\n", end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
