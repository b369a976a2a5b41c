"""The programs of folder ``inside`` as one archive, which Python runs from memory.

So a box needs no file of this project, a worker's directory may be private, and what runs beneath boxes can be read by
any user that they have.
"""

import io
import zipfile
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "guest"
_PACKAGES = ("envs", "envs/sandbox", "envs/sandbox/guest")
_EPOCH = (1980, 1, 1, 0, 0, 0)


@cache
def pack_programs() -> bytes:
    """Return the archive, a zip file; ``python3 ARCHIVE`` runs ``start``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for package in _PACKAGES:
            archive.writestr(zipfile.ZipInfo(f"{package}/__init__.py", _EPOCH), b"")
        for path in sorted([*_FOLDER.glob("*.py"), *_FOLDER.glob("filters/*.bpf")]):
            if path.name != "__init__.py":
                name = f"{_PACKAGES[-1]}/{path.relative_to(_FOLDER)}"
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes())
        archive.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), b"from envs.sandbox.guest.start import main\nmain()\n")
    return buffer.getvalue()
