"""``view export`` in Chromium, opened from files: its numbers are Python's, no host is asked, text stays text."""

import re

import pytest

from agent_layer.view import Selection, write_site
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.tokens.tokens import show_tokens

from ..builders import attempt
from ..pictures import REMOTE, SVG, data_url, image_part, make_png, store_message
from ..stored import write_segment
from ..waiting import wait_until
from .hostile import ATTRIBUTES, ELEMENTS, HOSTILE, WATCH, store_texts
from .tabs import open_tab

_LITERALS = "[...document.querySelectorAll('main .token-row span.t')].map(one => one.textContent)"


@pytest.fixture(scope="module")
def site(viewed_store, tmp_path_factory):
    """Directory of an export of all runs but one."""
    store, directory = viewed_store.store, tmp_path_factory.mktemp("exported") / "site"
    store_texts(store, "hostile", "constructor", HOSTILE)
    pictures = [data_url(make_png(64)), data_url(SVG, "image/svg+xml"), REMOTE]
    answer = [image_part(data_url(make_png(32))), {"text": "a drawing"}]
    store_message(store, "i.0-0", [*map(image_part, pictures), {"$image": "../../info"}], outputs=[answer])
    write_segment(store, *attempt("left.0-0", run="left"))
    rows = [row for row in store.scan() if row.run != "left"]
    selection = Selection(rows, len(rows) + 1, "agent-layer query --run '<r>'", "page = …", 1_000.0)
    write_site(viewed_store.source, directory, selection, on_progress=lambda *_: None, on_left_out=pytest.fail)
    return directory


@pytest.fixture
def opened(chromium, site):
    """A tab for files of a directory, and all that it asks for."""
    with open_tab(chromium, f"{site.as_uri()}/index.html") as tab:
        folders = set()
        tab.page.on("request", lambda prompt: folders.add(prompt.url.rpartition("/site/")[0]))
        tab.page.on("dialog", lambda dialog: (tab.errors.append(dialog.message), dialog.dismiss()))
        tab.page.add_init_script(WATCH)
        yield tab
        assert tab.errors == []
        assert folders == {site.parent.as_uri()}
        assert tab.page.evaluate("window.broken") == []


def test_an_export_opens_from_a_file_and_shows_what_python_computes(opened, viewed):
    whole, tokens = viewed.store.get("g0.0-0"), show_tokens(viewed.source, RequestParams({"trajectory": "g0.0-0"}, {}))

    text = opened.open("#/trajectory/g0.0-0?step=1")
    assert re.search(r"Learned by\s+update 1 update 2\s+advantage \+0\.50", text)
    assert re.search(rf"Reward\s+{whole.reward:g}".replace("-", "\u2212"), text)
    assert opened.page.locator(".step-card").count() == len(whole.steps) == 2
    opened.open("#/trajectory/g0.0-0?tab=tokens")
    assert opened.page.evaluate(_LITERALS) == [_visible(*one) for one in zip(tokens.texts, tokens.ids, strict=True)]
    at = tokens.sampled.index(1)
    opened.page.hover(f"#t{at}")
    assert opened.page.inner_text("[data-fact='Id']") == str(tokens.ids[at])
    assert float(opened.page.inner_text("[data-fact='Log-probability']").replace("\u2212", "-")) == pytest.approx(
        tokens.logprobs[at], abs=1e-4
    )

    shown = {
        "#/trajectory/g0.0-0?tab=forks": "Broken prefixes",
        "#/run/r0": "Update 1",
        "#/update/r0/1": "greedy",
        "#/group/g0": "Member 3",
        "#/fleet": "It is not in an export",
        "#/learning/r0": "It is not in an export",
        "#/trajectories?text=what": "needs the store",
    }
    assert {view: text for view, text in shown.items() if text not in opened.open(view)} == {}
    opened.page.evaluate("location.hash = '#/trajectory/left.0-0'")
    opened.page.get_by_text("This is not in the export").wait_for()
    assert f"of {viewed.store.count()} matching trajectories" in opened.page.inner_text("footer")
    assert "agent-layer query --run '<r>'" in opened.page.inner_text("footer")


def test_filters_of_an_export_find_what_the_store_finds(opened, viewed):
    opened.open("#/trajectories")
    assert opened.page.inner_text("[data-count]") == str(viewed.store.count() - 1)
    for query, filters in (
        ("run=r0&reward=0.25..", {"run": "r0", "reward": (0.25, None)}),
        ("status=failed", {"status": "failed"}),
        ("task_type=hard&task=t1", {"task_type": "hard", "task": "t1"}),
    ):
        expected = [row.trajectory_id for row in viewed.store.query(limit=100, **filters).items]
        opened.open(f"#/trajectories?{query}")
        found = opened.page.locator("tbody tr[aria-rowindex] td:first-child a").evaluate_all(
            "all => all.map(a => a.title)"
        )
        assert found == expected


def test_sixty_hostile_strings_stay_text_in_an_export(opened, site):
    data = "".join(path.read_text() for path in (site / "data").iterdir())

    assert not {"<", "&", "\u2028", "\u2029"} & set(data)
    for view in ("", "?tab=tokens", "?tab=forks"):
        assert "alert(1)" in opened.open(f"#/trajectory/hostile.0-0{view}")
        assert opened.page.evaluate("'owned' in window || 'owned' in {}") is False
        assert opened.page.evaluate(ATTRIBUTES) == []
        assert "SCRIPT" not in opened.page.evaluate(ELEMENTS)
    opened.open("#/trajectory/hostile.0-0")
    message = opened.page.locator("main .said.user pre").evaluate_all("all => all.map(one => one.textContent)")
    assert message == list(HOSTILE)


def test_raster_images_are_seen_and_nothing_else_is_loaded(opened, tab, site):
    for one in (tab, opened):
        text = one.open("#/trajectory/i.0-0")
        one.page.wait_for_selector("img.seen", state="attached")
        for number in (2, 3):
            one.page.get_by_text(f"Image {number} of 3 is not shown").wait_for()
        images = one.page.locator("img.seen")
        wait_until(lambda images=images: images.evaluate_all("all => all.map(one => one.naturalWidth)") == [64, 32])
        assert REMOTE in text
        assert "a drawing" in text
        assert one.page.evaluate("'owned' in window") is False
    assert tab.hosts == {tab.address.split("/")[2]}
    assert len(list((site / "images").iterdir())) == 2


def _visible(text, token_id):
    return f"⟨{token_id}⟩" if text is None else text
