"""Root directory with the host's programs, for kinds whose boxes a container runtime makes."""

import io
import tarfile
from pathlib import Path
from typing import Final

from envs.sandbox.guest.skeleton import HOST_FILES, HOST_LINKS, ROOT_FILES

_FOLDERS: Final = ("dev", "etc", "proc", "run", "sys", "tmp", "usr", "work")
HIDING_OPTIONS: Final = "size=4k,mode=555,ro,nosuid,nodev"
"""Options of the empty file system that covers a hidden folder."""


def list_host_binds() -> list[str]:
    """Return the files and directories of the host that boxes see, read-only."""
    tops = [Path("/", name) for name in HOST_LINKS]
    files = [Path("/", name) for name in HOST_FILES]
    kept = [*(top for top in tops if top.is_dir() and not top.is_symlink()), *(file for file in files if file.exists())]
    return ["/usr", *map(str, kept)]


def pack_host_root() -> bytes:
    """Return the rest of the root directory as a tar: directories, links and a few lines of configuration.

    The same machine gives the same bytes.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in _FOLDERS:
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(member)
        for name in HOST_LINKS:
            if (top := Path("/", name)).is_symlink():
                member = tarfile.TarInfo(name)
                member.type, member.linkname = tarfile.SYMTYPE, str(top.readlink())
                archive.addfile(member)
        for name, text in ROOT_FILES.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), 0o644
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()
