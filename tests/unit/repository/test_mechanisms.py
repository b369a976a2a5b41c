"""The check of sources finds a module that does itself what infra does for all."""

import runpy
from pathlib import Path

import pytest

CHECKER = Path(__file__).parents[3] / ".ci" / "check_sources.py"


@pytest.fixture(scope="module")
def find():
    """Return the numbers of the mechanisms that a module uses itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(CHECKER.parent)
        checker = runpy.run_path(str(CHECKER))

    def find(source: str) -> list[int]:
        return [number for number, one in enumerate(checker["MECHANISMS"]) if checker["uses"](one, source)]

    return find


ENVIRONMENT, HTTP, LOCK, MOVE = range(4)


@pytest.mark.parametrize(
    ("source", "mechanism"),
    [
        ("import os\nos.environ['A']", ENVIRONMENT),
        ("from os import getenv", ENVIRONMENT),
        ("from urllib.request import urlopen", HTTP),
        ("import urllib.request\n", HTTP),
        ("from urllib import request", HTTP),
        ("from http import client", HTTP),
        ("import http.client as web", HTTP),
        ("from http.client import HTTPException", HTTP),
        ("import fcntl\nfcntl.flock(1, 2)", LOCK),
        ("from fcntl import flock", LOCK),
        ("import fcntl\nfcntl.lockf(1, 2)", LOCK),
        ("fresh.replace(path)", MOVE),
        ("Path(fresh).rename(path.with_suffix('.log'))", MOVE),
        ("import os\nos.replace(fresh, path)", MOVE),
        ("from os import rename", MOVE),
        ("import shutil\nshutil.move(fresh, path)", MOVE),
    ],
)
def test_a_second_home_is_found(find, source: str, mechanism: int):
    assert find(source) == [mechanism]


@pytest.mark.parametrize(
    "source",
    [
        "text.replace('a', 'b')",
        "msgspec.structs.replace(one, name='a')",
        "replace(one, name='a')",
        "time.replace(tzinfo=None)",
        "from agent_layer.infra import replace_file\nreplace_file(path, b'')",
        "import aiohttp\naiohttp.ClientSession()",
    ],
)
def test_other_uses_of_the_words_are_none(find, source: str):
    assert find(source) == []
