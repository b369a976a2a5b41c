"""Files of the page: vendored ones as their packages have them, ours small and free of what hostile text could use."""

import hashlib
import re
import shutil
from pathlib import Path

import pytest

from ..waiting import run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "agent_layer" / "view" / "page"
OURS = sorted(path for path in PAGE.rglob("*.js") if "vendor" not in path.parts)


def test_vendored_files_are_those_that_their_readme_names():
    listed = re.findall(
        r"^\| `([\w.-]+)` .*\| ([0-9a-f]{64}) \|$", (PAGE / "vendor" / "README.md").read_text(), re.MULTILINE
    )
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (PAGE / "vendor").iterdir()}
    code = {name: digest for name, digest in found.items() if name.endswith((".js", ".css"))}

    assert dict(listed) == code


def test_our_script_stays_small():
    lines = {path: len(path.read_text().splitlines()) for path in OURS}

    assert sum(lines.values()) <= 6000
    assert [path.name for path, number in lines.items() if number > 400] == []


def test_no_text_becomes_markup_or_code():
    forbidden = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc")
    pages = {path.name: forbidden.findall(path.read_text()) for path in OURS}

    assert {name: found for name, found in pages.items() if found} == {}


def test_nothing_names_another_host():
    ours = [path for path in PAGE.rglob("*.*") if "vendor" not in path.parts]
    named = {path.name: re.findall(r"(?:https?:)?//[a-z0-9-]+\.[a-z]{2,}[^\s\"']*", path.read_text()) for path in ours}
    named = {name: [one for one in found if one != "http://www.w3.org/2000/svg"] for name, found in named.items()}

    assert {name: found for name, found in named.items() if found} == {}


def test_the_page_itself_has_neither_inline_script_nor_style():
    markup = (PAGE / "index.html").read_text()

    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", markup) == []


@pytest.mark.parametrize("theme", [":root", ':root[data-theme="dark"]'], ids=["light", "dark"])
@pytest.mark.parametrize("ink", ["ink", "ink-2", "ink-3", "accent", "good", "warn", "bad"])
def test_text_stands_out_from_every_ground_it_is_on(theme: str, ink: str):
    tokens = _colours(theme)
    soft = [f"{ink}-soft"] if f"{ink}-soft" in tokens else []

    assert {
        ground: _contrast(tokens[ink], tokens[ground])
        for ground in ["page", "card", *soft]
        if _contrast(tokens[ink], tokens[ground]) < 4.5
    } == {}


def test_each_tint_of_a_token_has_its_class():
    sheet = (PAGE / "css" / "views.css").read_text()
    hues = set(re.findall(r'"--((?:hue|ink|line)[\w-]*)"', (PAGE / "pure" / "colour.js").read_text()))
    wanted = (
        {f".of-{hue}" for hue in hues} | {f".of-hue-{at}" for at in range(6)} | {f".tint-{at}" for at in range(1, 17)}
    )

    assert {one for one in wanted if f"{one} {{" not in sheet} == set()


def test_pure_modules():
    if not (node := shutil.which("node")):
        pytest.skip("node is not installed")
    files = sorted(map(str, (ROOT / "tests" / "browser" / "pure").glob("*.test.mjs")))

    ran = run([node, "--test", *files])

    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]


def _colours(theme: str) -> dict[str, str]:
    block = (PAGE / "css" / "tokens.css").read_text().split(f"{theme} {{")[1].split("}")[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


def _contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours (WCAG 2.2)."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
