"""Optional packages: the extra that brings each, and the command that adds it to this installation."""

import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

_OURS: Final = "agent-layer"
_OF_EXTRA: Final = re.compile(r"""([\w.-]+).*;.*\bextra *== *["']([\w-]+)["']""")
"""A requirement: name of the package, then the extra that has it."""


class _Directory(msgspec.Struct):
    editable: bool = False


class _Repository(msgspec.Struct):
    vcs: str
    commit_id: str


class _Origin(msgspec.Struct):
    """Where a package was installed from, when that was no index: direct_url.json of PEP 610."""

    url: str
    dir_info: _Directory | None = None
    vcs_info: _Repository | None = None


def install_command(extra: str) -> str:
    """Return the command that adds an extra, from where this package came: a checkout, a repository, or the index."""
    match _read_origin():
        case _Origin(url=url, dir_info=_Directory(editable=editable)):
            return f"pip install {'-e ' if editable else ''}'{unquote(urlsplit(url).path)}[{extra}]'"
        case _Origin(url=url, vcs_info=_Repository(vcs=vcs, commit_id=commit)):
            return f"pip install '{_OURS}[{extra}] @ {vcs}+{url}@{commit}'"
        case _Origin(url=url):
            return f"pip install '{_OURS}[{extra}] @ {url}'"
        case _:
            return f"pip install '{_OURS}[{extra}]'"


def find_extra(module: str) -> str | None:
    """Return the first extra that brings a module; None: no extra of ours does.

    A package of several that share a name, such as opentelemetry, belongs to the extra that adds to the name.
    """
    name = _plain(module.partition(".")[0])
    found = [match.groups() for line in _requirements() if (match := _OF_EXTRA.match(line))]
    named = [extra for package, extra in found if _plain(package) == name]
    inside = [extra for package, extra in found if _plain(package).startswith(f"{name}-")]
    return next(iter([*named, *inside]), None)


def _plain(name: str) -> str:
    """Packages are imported as ``pydantic_settings`` and required as ``pydantic-settings``."""
    return name.replace("_", "-").lower()


def _requirements() -> Sequence[str]:
    try:
        return distribution(_OURS).requires or ()
    except PackageNotFoundError:  # run from a folder that was never installed
        return ()


def _read_origin() -> _Origin | None:
    try:
        content = distribution(_OURS).read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    return msgspec.json.decode(content, type=_Origin) if content else None
