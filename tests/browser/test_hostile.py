"""Sixty hostile strings as prompts, answers, tools, agents, labels and addresses: each stays a text, whatever shows it.

A trajectory that holds them is compared with one of the same shape that holds plain words: the same elements must be
there. A string that became markup, an attribute or a style would change that.
"""

from collections import Counter

import pytest

from .hostile import ATTRIBUTES, ELEMENTS, HOSTILE, NAMES, WATCH, store_texts

_WALK = """async texts => {
  const lost = [];
  for (const text of texts) {
    location.hash = '#/run/' + encodeURIComponent(text);
    for (let frame = 0; document.querySelector('h1')?.textContent !== text; frame += 1) {
      if (frame > 3000) { lost.push(text); break }
      await new Promise(done => setTimeout(done, 20));
    }
  }
  return lost;
}"""
"""Show each text as the name of a run; return those that the page does not show as they are."""


@pytest.fixture(scope="module", autouse=True)
def _stored(viewed_store):
    plain = [f"plain {number} ".ljust(len(text), "x") for number, text in enumerate(HOSTILE)]
    store_texts(viewed_store.store, "plain", "words", plain)
    store_texts(viewed_store.store, "hostile", NAMES[0], HOSTILE)


def test_sixty_hostile_strings_stay_text(tab):
    dialogs = []
    tab.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    tab.page.add_init_script(WATCH)

    for view in ("#/trajectory/{0}.0-0", "#/trajectory/{0}.0-0?tab=tokens", "#/group/{0}"):
        elements = []
        for name in ("plain", "hostile"):
            shown = tab.open(view.format(name))
            tab.page.wait_for_function("!document.querySelector('main .loading')")
            elements.append(Counter(tab.page.evaluate(ELEMENTS)))
        assert elements[1] - elements[0] == elements[0] - elements[1] == Counter(), view
        assert "alert(1)" in shown
        _expect_clean(tab)
    for view in ("#/runs", f"#/run/{NAMES[0]}", f"#/trajectories?run={NAMES[0]}&columns=agents,task,worker,engines"):
        tab.open(view)
        _expect_clean(tab)
    assert dialogs == []
    assert tab.errors == []


def test_sixty_hostile_addresses_stay_text(tab):
    dialogs = []
    tab.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    tab.page.add_init_script(WATCH)
    tab.open("#/fleet")

    assert tab.page.evaluate(_WALK, [*HOSTILE, *NAMES]) == []
    _expect_clean(tab)
    tab.open("#/run/" + tab.page.evaluate("text => encodeURIComponent(text)", HOSTILE[10]))
    assert tab.page.inner_text("h1") == HOSTILE[10]
    assert tab.page.title() == f"{HOSTILE[10]} · agent-layer"
    _expect_clean(tab)
    assert tab.page.evaluate("document.querySelectorAll('main img, main script, main iframe, main svg *').length") == 0
    assert dialogs == []
    assert tab.errors == []


def _expect_clean(tab):
    """Nothing ran, nothing was asked of another host, and no attribute came from a string."""
    assert tab.page.evaluate("'owned' in window || 'owned' in {}") is False
    assert tab.page.evaluate("window.broken") == []
    assert tab.page.evaluate(ATTRIBUTES) == []
    assert tab.page.title().endswith(" · agent-layer")
    assert tab.hosts == {tab.address.split("/")[2]}
