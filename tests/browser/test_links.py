"""Links that commands print, followed in Chromium: each opens what the command named; programs that read get none."""

import json
import re
from typing import get_args

import pytest

from agent_layer.view import announce_page, find_page, make_link
from agent_layer.view.links import Thing

from ..viewing import store_update
from ..waiting import wait_until

_TASKS = '{"id": "fresh", "input": "what?"}\n'
_COMMANDS = {
    "show g0.0-0": ("trajectory", "Step 1"),
    "show g0.0-0 --step 1": ("step", "Step 1"),
    "query --run r0 --reward 0.25..0.3 --accepted": ("trajectories", "reward = 0.25..0.3"),
    "query --order reward --limit 1": ("trajectories", "g0.0-0"),
    "query --run r0 --step last --limit 1": ("trajectories", "step = last"),
    "summary --by status --run r1": ("trajectories", "run = r1"),
    "reward g0.0-0 0.5": ("trajectory", "superseded"),
    "label g0.0-0 verdict=wrong": ("trajectory", "verdict"),
    "reward g0.0-0 0.5 --step 0": ("step", "Step 0"),
    "submit {tasks} --run fresh": ("run", "Nothing is stored yet"),
    "runs --run fresh": ("run", "Nothing is stored yet"),
    "runs": ("runs", "r0"),
    "runs pause fresh": ("run", "fresh"),
    "tasks --run fresh": ("run", "fresh"),
    "tasks": ("fleet", "fresh"),
    "rollouts": ("fleet", "fresh"),
    "groups": ("fleet", "fresh"),
    "dead": ("failures", "By whose fault"),
    "dead list --errors": ("failures", "By whose fault"),
    "workers": ("fleet", "No worker was seen in the last day"),
    "engines list": ("fleet", "No engine is registered"),
    "alerts now --run r0": ("run", "Update 1"),
    "alerts now": ("runs", "r0"),
    "replay --run r0 --step 1": ("update", "greedy"),
}
"""What is typed → what its link shows, and a text that is there."""


@pytest.fixture
def page(fresh, fresh_tab):
    """The page, as it announces itself; an update is there, too."""
    store_update(fresh.store)
    with announce_page(fresh.settings, f"{fresh_tab.address}?token=secret"):
        wait_until(lambda: find_page(fresh.settings) == fresh_tab.address)
        yield fresh_tab


def _links(message):
    return re.findall(r"^view: (\S+)$", message, re.MULTILINE)


def test_each_link_opens_what_the_command_named(page, agent_layer, tmp_path):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(_TASKS)
    shown, texts = set(), {}
    for typed, (thing, text) in _COMMANDS.items():
        _, printed, stderr = agent_layer(*(word.format(tasks=tasks) for word in typed.split()))
        (link,) = _links(stderr)
        assert "view:" not in printed, typed
        assert "token" not in link
        place = link.removeprefix(page.address)
        if text not in texts.get(place, ""):  # another command may have led there, and may have changed it
            texts[place] = page.open(place)
            assert page.page.locator("[role=alert]").count() == 0, typed
            assert page.page.locator("[aria-current=page]").count() >= 1, typed
        assert text in texts[place], f"{typed} → {link}"
        shown.add(thing)

    assert page.errors == []
    assert set(get_args(Thing)) - shown == {"group", "learning"}, "their links are followed below"


def test_links_of_groups_and_of_learning_open_them(page):
    assert "Member 3" in page.open(make_link("", "group", "g0"))
    assert "By the policy version" in page.open(make_link("", "learning", "r0"))


def test_a_name_with_any_letters_is_one_name(page):
    for name in ("a/b?c#d", "100% ü", "../x", "a&b=c"):
        page.open(make_link("", "run", name))
        assert page.page.inner_text("h1") == name


def test_programs_that_read_get_no_link(page, agent_layer):
    for typed in (
        "show g0.0-0 --format json",
        "query --format jsonl",
        "groups --format jsonl",
        "runs --format jsonl",
        "query --count",
        "summary --format jsonl",
        "alerts now --format jsonl",
    ):
        status, printed, stderr = agent_layer(*typed.split())
        assert status == 0
        assert stderr == "", typed
        assert all(json.loads(line) for line in printed.splitlines())
    assert page.errors == []


def test_the_setting_wins_and_its_token_is_not_printed(page, agent_layer, monkeypatch):
    monkeypatch.setenv("AGENT_LAYER_VIEW_URL", "https://ada:key@runs.example/page?token=secret#/fleet")
    _, _, stderr = agent_layer("show", "g0.0-0")

    assert _links(stderr) == ["https://runs.example/page/#/trajectory/g0.0-0"]
    assert page.errors == []


def test_without_a_page_no_link_is_printed(fresh, agent_layer):
    assert find_page(fresh.settings) is None
    status, _, errors = agent_layer("show", "g0.0-0")

    assert (status, _links(errors)) == (0, [])
