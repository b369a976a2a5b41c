"""A small root directory of this machine's own programs, for kinds whose boxes have images: made without a network."""

import re
import shutil
import subprocess
from pathlib import Path

_PROGRAMS = (
    *("sh", "env", "cat", "ls", "wc", "head", "tee", "sleep", "true", "echo", "mkdir", "rm", "ln", "mkfifo", "stat"),
    *("basename", "setsid", "id", "find", "touch", "df", "test", "chmod", "printf", "kill"),
)
_LEFT_OUT = ("test", "tests", "idlelib", "lib2to3", "__pycache__", "ensurepip", "pydoc_data", "turtledemo", "config-*")
_LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}
_FOLDERS = (
    "dev",
    "etc",
    "proc",
    "root",
    "run",
    "srv/data",
    "sys",
    "tmp",
    "usr/bin",
    "usr/lib",
    "usr/lib64",
    "usr/sbin",
)
MARK = "of the image\n"
_PYTHON = Path("/usr/bin/python3")


def make_root_directory(top, *more):
    """Fill a folder with python3, a shell, what the tests call and more programs, about 30 MB; return it."""
    for folder in _FOLDERS:
        (top / folder).mkdir(parents=True, exist_ok=True)
    for name, target in _LINKS.items():
        (top / name).symlink_to(target)
    (top / "tmp").chmod(0o1777)
    (top / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\nagent:x:1000:1000:agent:/work:/bin/sh\n")
    (top / "etc/group").write_text("root:x:0:\nagent:x:1000:\n")
    (top / "srv/data/mark").write_text(MARK)
    python = _PYTHON.resolve()
    library = Path("/usr/lib") / python.name
    files = [
        python,
        *(Path(found) for name in (*_PROGRAMS, *more) if (found := shutil.which(name, path="/usr/bin:/bin"))),
    ]
    shutil.copytree(library, top / library.relative_to("/"), ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)
    for file in files:
        shutil.copy(file.resolve(), top / "usr/bin" / file.name)
    (top / "usr/bin/python3").symlink_to(python.name)
    for name in _list_libraries([*files, *library.glob("lib-dynload/*.so")]):
        target = top / Path(name).parent.resolve().relative_to("/") / Path(name).name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, target)
    return top


def _list_libraries(files):
    """Return the shared libraries that programs need, by the paths under which the loader looks for them."""
    found = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False).stdout
    return sorted(set(re.findall(r"(?:=> |^\t)(/\S+) \(", found, re.MULTILINE)))
