"""Words inside trajectories, searched on the page: the state is in the address, and what models wrote stays text."""

import json

import pytest

from agent_layer.schema.step import Action, StepState

from ..builders import attempt, call, content
from ..stored import write_segment
from .tabs import find_faults

_TEXT = "<img src=x onerror=document.title='owned'> swordfish"


@pytest.fixture
def tab(fresh_tab):
    """These tests change the store."""
    return fresh_tab


def test_what_is_typed_stays_when_a_run_moves_the_page(tab, fresh):
    tab.open("#/trajectories?run=r0")
    shown = tab.page.locator("[data-count]")
    before = shown.inner_text()
    for field in ("[data-words]", "[data-search]", "[placeholder='Since 2h']"):
        tab.page.focus(field)
        tab.page.keyboard.type("sword")
        write_segment(fresh.store, *attempt(f"{len(field)}.0-0", run="r0"))
        tab.page.wait_for_function("now => document.querySelector('[data-count]').textContent !== now", arg=before)
        before = shown.inner_text()
        tab.page.keyboard.type("fish")
        assert tab.page.input_value(field) == "swordfish"
        tab.page.fill(field, "")


def test_words_are_searched_by_key_and_a_result_opens_its_step(tab, fresh):
    tid, request = "s.0-0", {"role": "user", "content": "first"}
    prompt, again = (content(tid, json.dumps(one).encode()) for one in (request, {"role": "user", "content": _TEXT}))
    write_segment(
        fresh.store,
        *attempt(
            tid,
            prompt,
            again,
            *call(tid, "a", Action(message={"content": "ok"}), state=StepState(messages=[prompt.hash]), run="r0"),
            *call(tid, "b", at=3.0, state=StepState(messages=[prompt.hash, again.hash]), run="r0"),
            run="r0",
            score=0.5,
        ),
    )
    tab.open("#/trajectories?run=r0")
    tab.page.keyboard.press("w")
    tab.page.keyboard.type("swordfish")
    tab.page.keyboard.press("Enter")
    row = tab.page.locator("[data-matches] tbody tr")
    row.wait_for()

    assert [cell.strip() for cell in row.all_inner_texts()[0].split("\t")] == [
        *(tid, "1", _TEXT, "message", "completed", "0.50")
    ]
    assert tab.page.locator("mark").all_inner_texts() == ["swordfish"]
    assert "text=swordfish" in tab.page.url
    assert find_faults(tab.page) == []
    tab.open(tab.page.url.partition("/#")[2].join(["#", ""]))
    tab.page.locator("[data-matches]").wait_for()
    tab.page.set_viewport_size({"width": 390, "height": 844})
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.page.locator("mark").bounding_box()["x"] < 390
    tab.page.click("[data-matches] a")
    tab.page.wait_for_selector("#step-1")
    assert "step=1" in tab.page.url
    assert "No text has all of these words" in tab.open("#/trajectories?run=r1&text=swordfish")
    assert "words of letters or digits" in tab.open("#/trajectories?text=--")
    assert tab.page.title() != "owned"
