"""A long trajectory on the page: the first frame holds little, and all of it is there soon after."""

import pytest

from agent_layer.schema.record import TokenIds
from agent_layer.schema.step import PromptDelta

from ..builders import attempt, call, sampled
from ..integration.view.test_view import viewed  # noqa: F401 - the store that the API's own tests read
from ..stored import write_segment
from ..waiting import wait_until
from .test_views import chromium, tab  # noqa: F401 - the browser and the server of the other tests

_STEPS, _TOKENS = 30, 100
_TOTAL = 2 * _STEPS * _TOKENS
_FIRST_COUNT = """new MutationObserver(() => {
  const cards = document.querySelectorAll('.step-card').length;
  if (cards) window.firstCards ??= cards;
}).observe(document, {childList: true, subtree: true})"""


@pytest.fixture
def long(tab, viewed):  # noqa: F811 - imported above
    """A tab over a store that has a trajectory of 30 steps and 6,000 tokens."""
    given = TokenIds([number % 10 for number in range(_TOKENS)])
    calls = []
    for step in range(_STEPS):
        before = f"long.0-0/{step - 1}" if step else None
        prompt = PromptDelta(
            delta=given, parent_call=before, prefix_length=2 * step * _TOKENS, prefix_hash="not read" if step else None
        )
        own = {"at": 2.0 + step, "prompt": prompt, "tokenizer_hash": "v", "capture_level": "tokens"}
        calls += call("long.0-0", str(step), sampled(*given), **own)
    write_segment(viewed.store, *attempt("long.0-0", *calls, run="long"))
    return tab


def test_the_first_frame_has_few_steps_and_all_follow(long):
    long.page.add_init_script(_FIRST_COUNT)
    long.open("#/trajectory/long.0-0")
    wait_until(lambda: long.page.locator(".step-card").count() == _STEPS)

    assert long.page.evaluate("window.firstCards") < _STEPS / 2


def test_the_step_of_an_address_is_in_sight_and_its_text_is_found(long):
    text = long.open(f"#/trajectory/long.0-0?step={_STEPS - 1}")
    card = long.page.locator(f"#step-{_STEPS - 1}.on")
    wait_until(lambda: 0 <= card.evaluate("one => one.getBoundingClientRect().top") < 900)
    wait_until(lambda: long.page.locator(".step-card").count() == _STEPS)

    assert f"Step {_STEPS - 1}" in text
    assert long.page.evaluate("window.find('Step 3', true, true, true)")
