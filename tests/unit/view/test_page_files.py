"""Files of the page as browsers get them: linked, packed, and as they are now."""

import gzip
import re

import pytest

from agent_layer.view.files import PAGE, find_file


@pytest.mark.parametrize(
    ("name", "imports", "last"),
    [("app.js", r"^(import|export)\b.*from", "followTheme();"), ("css/page.css", "@import", ".wide-only")],
)
def test_script_and_style_sheet_hold_all_that_they_import(name, imports, last):
    file = find_file(name)
    text = file.body.decode()

    assert re.findall(imports, text, re.MULTILINE) == []
    assert last in text
    assert gzip.decompress(file.packed) == file.body


def test_a_file_that_changed_is_served_as_it_is_now(tmp_path):
    (tmp_path / "app.js").write_text('import { told } from "./part.js";\nconsole.log(told);\n')
    (tmp_path / "part.js").write_text("export const told = 1;\n")
    before = find_file("app.js", tmp_path)
    (tmp_path / "part.js").write_text("export const told = 12;\n")
    after = find_file("app.js", tmp_path)

    assert b"told = 12;" in after.body
    assert after.tag != before.tag


@pytest.mark.parametrize("name", ["../files.py", "../page/../files.py", "vendor/README.md", "core", "", "none.js"])
def test_what_is_not_for_browsers_is_no_file(name):
    assert find_file(name) is None
    assert find_file("index.html").body == (PAGE / "index.html").read_bytes()
