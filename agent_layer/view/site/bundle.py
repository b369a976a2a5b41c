"""The page's modules as one classic script: a browser loads no module of JavaScript from a file.

Each module becomes a function that is called at once and returns what the module exports. They stand in the order in
which they need each other. A module that others ``await import`` is called when the first of them needs it. Only the
forms of ``import`` and ``export`` that the page uses are known; any other is an error, so that a module that is not
understood never reaches a reader.
"""

import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Final

_NAMES: Final = r"\{(?P<names>[^}]*)\}"
_FROM: Final = r"\s*from\s*\"(?P<path>[^\"]+)\";"
_IMPORT: Final = re.compile(rf"^import\s+(?:(?P<default>\w+)|{_NAMES}){_FROM}", re.MULTILINE)
_LATER: Final = re.compile(r"\bawait import\(\"(?P<path>[^\"]+)\"\)")
_PASSED_ON: Final = re.compile(rf"^export\s*{_NAMES}{_FROM}", re.MULTILINE)
_DECLARED: Final = re.compile(r"^export (?=(?:async )?(?:function\*?|const|class) (?P<name>[\w$]+))", re.MULTILINE)
_LISTED: Final = re.compile(rf"(?:^|(?<=;))export\s*{_NAMES};?\s*\Z", re.MULTILINE)
_UNKNOWN: Final = re.compile(r"^\s*(?:import|export)\b.*|\bimport\(.*", re.MULTILINE)
_ONCE: Final = "const once = (make) => { let made; return () => (made ??= make()); };"
_COMMENTS: Final = re.compile(r"/\*\*.*?\*/|^\s*/\*.*?\*/|^\s*//.*?$", re.DOTALL | re.MULTILINE)


def bundle_modules(read: Callable[[str], str], entry: str, replaced: Mapping[str, str]) -> str:
    """Return a script that does what a module and all that it imports do.

    Args:
        read: returns the text of a module by its path.
        entry: path of the module.
        replaced: paths of modules in whose place others stand, which export the same names.

    Raises: ValueError: a module has a form of import or export that is not known, or modules need each other.
    """
    bundle = _Bundle(read, replaced)
    bundle.add(entry)
    modules = [_define(path, text, is_late=path in bundle.late) for path, text in bundle.texts.items()]
    return "\n".join(['"use strict";', "(() => {", _ONCE, *modules, "})();", ""])


class _Bundle:
    def __init__(self, read: Callable[[str], str], replaced: Mapping[str, str]) -> None:
        self.texts: dict[str, str] = {}
        """By path, each behind all that it needs."""
        self.late: set[str] = set()
        """Paths of modules that are called when they are needed."""
        self._exported: dict[str, set[str]] = {}
        self._read = read
        self._replaced = replaced
        self._waiting: list[str] = []

    def add(self, path: str) -> None:
        """Add a module behind all that it needs."""
        if path in self._waiting:
            circle = " → ".join([*self._waiting, path])
            raise ValueError(f"module {path}: expected none that needs itself, found {circle}")
        if path in self.texts:
            return
        self._waiting.append(path)
        text = self._read(path)
        pairs = [found["name"] for found in _DECLARED.finditer(_COMMENTS.sub("", text))]
        pairs += [_pairs(found["names"], swap=True) for form in (_PASSED_ON, _LISTED) for found in form.finditer(text)]
        for form in (_IMPORT, _PASSED_ON):
            text = form.sub(lambda found: self._bind(path, found), text)
        text = _LATER.sub(lambda found: self._call(path, found), text)
        text = _LISTED.sub("", _DECLARED.sub("", text))
        if (unknown := _UNKNOWN.search(_COMMENTS.sub("", text))) is not None:
            raise ValueError(f"module {path}: expected an import or export that is known, found {unknown[0][:80]!r}")
        self.texts[path] = f"{text}\nreturn {{ {', '.join(pairs)} }};"
        self._exported[path] = {pair.split(":")[0] for pair in ", ".join(pairs).split(", ")}
        self._waiting.pop()

    def _call(self, path: str, found: re.Match[str]) -> str:
        """Return the expression that stands for an import of a module when it is needed."""
        needed = self._place(path, found)
        if needed in self.texts and needed not in self.late:
            raise ValueError(f"module {needed}: expected all to import it when they need it, as {path} does")
        self.late.add(needed)
        self.add(needed)
        return f"{_variable(needed)}()"

    def _bind(self, path: str, found: re.Match[str]) -> str:
        """Return the statement that stands for an import."""
        needed = self._place(path, found)
        if needed in self.late:
            raise ValueError(f"module {needed}: expected all to import it when they need it, found {path}")
        self.add(needed)
        default = found.groupdict().get("default")
        names = f"default: {default}" if default else _pairs(found["names"])
        if missing := {pair.split(":")[0] for pair in names.split(", ")} - self._exported[needed]:
            raise ValueError(f"module {needed}: expected {min(missing)!r}, which {path} imports, found no such export")
        return f"const {{ {names} }} = {_variable(needed)};"

    def _place(self, path: str, found: re.Match[str]) -> str:
        needed = posixpath.normpath(posixpath.join(posixpath.dirname(path), found["path"]))
        return self._replaced.get(needed, needed)


def _define(path: str, text: str, *, is_late: bool) -> str:
    begin, end = ("once(", ");") if is_late else ("(", ")();")
    return f"const {_variable(path)} = {begin}() => {{ // {path}\n{text}\n}}{end}"


def _pairs(names: str, *, swap: bool = False) -> str:
    """Return ``a, b as c`` as ``a, b: c``; or as ``a, c: b``, for an object that has the new names."""
    found = [one.split(" as ") for one in names.split(",") if one.strip()]
    pairs = [[part.strip() for part in (reversed(one) if swap else one)] for one in found]
    return ", ".join(": ".join(one) for one in pairs)


def _variable(path: str) -> str:
    return "_" + re.sub(r"\W", "_", path)
