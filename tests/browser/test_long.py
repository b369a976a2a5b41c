"""A long trajectory on the page: the first frame holds little, and all of it is there soon after."""

import pytest

from agent_layer.schema.record import TokenIds
from agent_layer.schema.step import PromptDelta

from ..builders import attempt, call, sampled
from ..stored import write_segment
from ..waiting import wait_until

_STEPS, _TOKENS = 30, 100
_TOTAL = 2 * _STEPS * _TOKENS
_FIRST_COUNT = """new MutationObserver(() => {
  const cards = document.querySelectorAll('.step-card').length;
  if (cards) window.firstCards ??= cards;
}).observe(document, {childList: true, subtree: true})"""

_SCROLL = """grid => new Promise(done => {
  const removed = [];
  const note = changes => changes.forEach(one => one.removedNodes.forEach(row => removed.push(row.children[1].id)));
  new MutationObserver(note).observe(grid, {childList: true, subtree: true});
  grid.addEventListener('scroll', () => requestAnimationFrame(() => requestAnimationFrame(() => done(removed))));
  grid.scrollTop = 240;
})"""
"""Scrolls by ten rows; returns the first token of each row that was taken out of its place."""


@pytest.fixture(scope="module", autouse=True)
def _stored(viewed_store):
    """A trajectory of 30 steps and 6,000 tokens."""
    given = TokenIds([number % 10 for number in range(_TOKENS)])
    calls = []
    for step in range(_STEPS):
        before = f"long.0-0/{step - 1}" if step else None
        prompt = PromptDelta(
            delta=given, parent_call=before, prefix_length=2 * step * _TOKENS, prefix_hash="not read" if step else None
        )
        own = {"at": 2.0 + step, "prompt": prompt, "tokenizer_hash": "v", "capture_level": "tokens"}
        calls += call("long.0-0", str(step), sampled(*given, version=step // 10), **own)
    write_segment(viewed_store.store, *attempt("long.0-0", *calls, run="long"))


def test_the_first_frame_has_few_steps_and_all_follow(tab):
    tab.page.add_init_script(_FIRST_COUNT)
    tab.open("#/trajectory/long.0-0")
    wait_until(lambda: tab.page.locator(".step-card").count() == _STEPS)

    assert tab.page.evaluate("window.firstCards") < _STEPS / 2


def test_the_step_of_an_address_is_in_sight_and_its_text_is_found(tab):
    text = tab.open(f"#/trajectory/long.0-0?step={_STEPS - 1}")
    card = tab.page.locator(f"#step-{_STEPS - 1}.on")
    wait_until(lambda: 0 <= card.evaluate("one => one.getBoundingClientRect().top") < 900)
    wait_until(lambda: tab.page.locator(".step-card").count() == _STEPS)

    assert f"Step {_STEPS - 1}" in text
    assert tab.page.evaluate("window.find('Step 3', true, true, true)")


def test_all_tokens_follow_the_first_answer(tab):
    tab.open("#/trajectory/long.0-0?tab=tokens")
    tab.page.get_by_text(f"{_TOTAL:,} in all").wait_for()
    tab.page.wait_for_selector("text=loading …", state="detached")
    tab.page.locator(".token-grid").evaluate("one => one.scrollTop = one.scrollHeight")

    assert tab.page.inner_text(f"#t{_TOTAL - 1}") == "⟨9⟩"


def test_tokens_have_the_colours_of_the_legend_also_once_newer_versions_have_come(tab):
    colour = "one => getComputedStyle(one).backgroundColor"
    tab.open("#/trajectory/long.0-0?tab=tokens&colour=version")
    tab.page.wait_for_selector("text=loading …", state="detached")
    legend = tab.page.locator(".legend > span", has_text="v0").locator(".swatch")

    assert tab.page.locator(f"#t{_TOKENS}").evaluate(colour) == legend.evaluate(colour)


def test_a_scroll_leaves_rows_that_stay_in_sight_as_they_are(tab):
    tab.open("#/trajectory/long.0-0?tab=tokens")
    removed = tab.page.locator(".token-grid").evaluate(_SCROLL)

    assert "t0" in removed
    assert f"t{10 * _TOKENS}" not in removed


def test_a_token_is_chosen_by_a_move_of_the_pointer_and_by_no_scroll(tab):
    tab.open("#/trajectory/long.0-0?tab=tokens")
    tab.page.hover("#t5")
    assert tab.page.inner_text("[data-fact=Position]") == "5"
    assert tab.page.get_attribute(".t.on", "id") == "t5"
    tab.page.dispatch_event("#t7", "mouseover")  # what a scroll makes of a pointer that is still
    assert tab.page.inner_text("[data-fact=Position]") == "5"
    tab.page.hover("#t6")

    assert tab.page.inner_text("[data-fact=Position]") == "6"
    chosen = tab.page.locator(".t[aria-selected=true]").evaluate_all("all => all.map(one => one.id)")
    assert chosen == ["t6"]
