"""A static site: modules become one script, and a directory is replaced as a whole."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_layer.errors import BadInputError
from agent_layer.view.site.bundle import bundle_modules
from agent_layer.view.site.directory import MARK, replace_directory, write_mark

from ...waiting import run

_NAMES = ("index.html", "data/t0.js")


def test_a_bundle_does_what_its_modules_do(tmp_path):
    modules = {
        "main.js": 'import both, { add as plus,\n  Box } from "./lib/all.js";\n'.replace("both, ", "")
        + 'import two from "./two.js";\nconsole.log(plus(1, two), new Box().name);\n',
        "lib/all.js": 'export { add, Box } from "../parts.js";\n',
        "parts.js": "/** @type {import('x.js').X} */\nexport const add = (a, b) => a + b;\n"
        "export class Box { name = 'box'; }\n/*\nexport const gone = 1;\n*/\n",
        "two.js": "const a = 2;\nexport { a as default };\n",
    }
    script = tmp_path / "page.js"
    script.write_text(bundle_modules(modules.__getitem__, "main.js", {}))

    assert run(["node", script]).stdout == "3 box\n"


def test_a_module_stands_for_another(tmp_path):
    modules = {"main.js": 'import { a } from "./a.js";\nconsole.log(a);', "b.js": "export const a = 'b';"}
    script = tmp_path / "page.js"
    script.write_text(bundle_modules(modules.__getitem__, "main.js", {"a.js": "b.js"}))

    assert run(["node", script]).stdout == "b\n"


def test_a_module_that_is_needed_later_is_called_then_and_once(tmp_path):
    modules = {
        "main.js": 'const told = async () => (await import("./lib/late.js")).late;\n'
        'console.log("first");\ntold().then(console.log);\ntold().then(console.log);',
        "lib/late.js": 'import { a } from "../a.js";\nconsole.log("called");\nexport const late = a;',
        "a.js": "export const a = 'late';",
    }
    script = tmp_path / "page.js"
    script.write_text(bundle_modules(modules.__getitem__, "main.js", {}))

    assert run(["node", script]).stdout == "first\ncalled\nlate\nlate\n"


@pytest.mark.parametrize(
    "text",
    [
        'import * as all from "./a.js";',
        'import "./a.js";',
        "export default function f() {}",
        "export let a = 1;",
        'const later = import("./a.js");',
        'import { a } from "./a.js";\nconst later = await import("./a.js");',
        'import { b } from "./a.js";',
        'import { a } from "./main.js";\nexport const b = 1;',
    ],
)
def test_what_is_not_understood_is_refused_by_name(text):
    with pytest.raises(ValueError, match=r"^module (main|a)\.js: expected"):
        bundle_modules({"main.js": text, "a.js": "export const a = 1;"}.__getitem__, "main.js", {})


def _write(place: Path, text: str) -> None:
    place.mkdir(exist_ok=True)
    for name in _NAMES:
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text)
    write_mark(place, text, 1)


def _replace(directory: Path, put: Callable[[Path], None]) -> None:
    with replace_directory(directory) as place:
        put(place)


def _break_off(directory: Path, error: BaseException | type[BaseException]) -> None:
    with replace_directory(directory) as place:
        (place / "index.html").write_text("half")
        raise error


def _texts(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_an_export_takes_the_place_of_an_earlier_one(tmp_path):
    for text in ("old", "new"):
        with replace_directory(tmp_path / "a" / "site") as place:
            _write(place, text)

    _write(tmp_path / "expected", "new")
    assert _texts(tmp_path / "a" / "site") == _texts(tmp_path / "expected")
    assert {path.name for path in tmp_path.iterdir()} == {"a", "expected"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left")])
def test_what_breaks_off_leaves_what_was_there(tmp_path, error):
    with replace_directory(tmp_path / "site") as place:
        _write(place, "old")
    with pytest.raises((KeyboardInterrupt, BadInputError)):
        _break_off(tmp_path / "site", error)

    _write(tmp_path / "expected", "old")
    assert _texts(tmp_path / "site") == _texts(tmp_path / "expected")
    assert {path.name for path in tmp_path.iterdir()} == {"site", "expected"}


@pytest.mark.parametrize("name", ["notes.txt", "data/notes.txt", "data/mine/notes.txt"])
@pytest.mark.parametrize("marked", [False, True])
def test_files_of_others_are_never_replaced(tmp_path, marked, name):
    site = tmp_path / "site"
    if marked:
        _write(site, "old")
    (site / name).parent.mkdir(parents=True, exist_ok=True)
    (site / name).write_text("mine")
    before = _texts(tmp_path)

    with pytest.raises(BadInputError, match=f"found '{name}' in it"), replace_directory(site) as place:
        _write(place, "new")
    assert _texts(tmp_path) == before


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"kind": "mine", "version": "1", "num_trajectories": 1, "files": ["index.html"]}']
)
def test_a_directory_with_the_same_names_is_no_export(tmp_path, text):
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("mine")
    (site / MARK).write_text(text)
    before = _texts(tmp_path)

    with pytest.raises(BadInputError, match="or an earlier export"), replace_directory(site):
        pass
    assert _texts(tmp_path) == before


def test_a_file_that_appears_meanwhile_stays(tmp_path):
    def put(place: Path) -> None:
        _write(place, "new")
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "notes.txt").write_text("mine")

    with pytest.raises(BadInputError, match=r"found 'notes\.txt' in it"):
        _replace(tmp_path / "site", put)
    assert _texts(tmp_path) == {"site/notes.txt": "mine"}


def test_a_place_that_is_no_directory_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    for name, why in (("file", "found what is none"), (".", "the current one")):
        with pytest.raises(BadInputError, match=why), replace_directory(Path(name)):
            pass
