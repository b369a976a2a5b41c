"""Files of the page as browsers get them: script and style sheet hold all that they import, packed once.

On disk each module is a file of its own. A tab would ask for each of them, one level of imports after another.
"""

import gzip
import hashlib
import posixpath
import re
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from agent_layer.view.site.bundle import bundle_modules

_Reader: TypeAlias = Callable[[str], str]
"""Returns the text of a file by its name."""

PAGE: Final = Path(__file__).resolve().parent / "page"
SCRIPTS: Final = ("app.js", "early.js")
STYLES: Final = "css/page.css"
_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
}
_IMPORT: Final = re.compile(r'^@import "([^"]+)";$', re.MULTILINE)
_SHORT: Final = 1_024
"""Bytes that one packet holds: packing them saves nothing."""


class PageFile(NamedTuple):
    """One file, as it is sent."""

    content_type: str
    body: bytes
    packed: bytes | None
    """Content packed by gzip; None: it stays as it is."""
    tag: str
    """Another content has another tag."""


def find_file(name: str, directory: Path = PAGE) -> PageFile | None:
    """Return a file below the directory, as it is now; None: there is none of this name, or it is not for browsers."""
    if "\0" in name:  # no name of a file, and an error to every call of the system
        return None
    path = (directory / name).resolve()
    if path.suffix not in _TYPES or not path.is_relative_to(directory) or not path.is_file():
        return None
    name = path.relative_to(directory).as_posix()
    sources = sorted(directory.rglob(f"*{path.suffix}")) if name in _LINKED else [path]
    state = tuple((one, found.st_size, found.st_mtime_ns) for one in sources for found in [one.stat()])
    return _load_file(directory, name, state)


@lru_cache(maxsize=128)
def _load_file(directory: Path, name: str, _state: Hashable) -> PageFile:
    """Make a file; ``_state`` is another one when a source has changed."""

    def read(name: str) -> str:
        return (directory / name).read_text(encoding="utf-8")

    body = _LINKED[name](read).encode() if name in _LINKED else (directory / name).read_bytes()
    packed = gzip.compress(body, mtime=0) if len(body) > _SHORT else None
    return PageFile(_TYPES[Path(name).suffix], body, packed, hashlib.sha256(body).hexdigest()[:32])


def _link_styles(read: _Reader) -> str:
    folder = posixpath.dirname(STYLES)
    return _IMPORT.sub(lambda found: read(posixpath.normpath(posixpath.join(folder, found[1]))), read(STYLES))


_LINKED: Final[Mapping[str, Callable[[_Reader], str]]] = {
    **{name: partial(bundle_modules, entry=name, replaced={}) for name in SCRIPTS},
    STYLES: _link_styles,
}
"""What holds all that it imports, by its name."""
