"""``view export`` in Chromium, opened from files: its numbers are Python's, no host is asked, text stays text."""

import re

import pytest

from agent_layer.view.reads import Asked, Source
from agent_layer.view.reads.tokens import show_tokens
from agent_layer.view.site import Selection, write_site

from ..integration.view.test_images import REMOTE, SVG, data_url, make_png, shown, store_message
from ..integration.view.test_view import viewed  # noqa: F401 - the store that the API's own tests read
from ..waiting import wait_until
from .hostile import HOSTILE
from .test_hostile import _ATTRIBUTES, _ELEMENTS, _WATCH, _store
from .test_views import _LIMIT_SECONDS, _Tab, _train, chromium, tab  # noqa: F401 - the browser of the other tests

_LITERALS = "[...document.querySelectorAll('main .token-row span.t')].map(one => one.textContent)"


def _export(viewed, directory, **filters):  # noqa: F811
    rows = list(viewed.store.scan(**filters))
    selection = Selection(rows, len(rows) + 3, "agent-layer query --run '<r>'", "page = …", 1_000.0)
    source = Source(viewed.settings, viewed.store)
    write_site(source, directory, selection, on_progress=lambda *_: None, on_left_out=pytest.fail)
    return source


@pytest.fixture
def opened(chromium, tmp_path):  # noqa: F811
    """A tab for files of a directory, and all that it asks for."""
    own = _Tab(chromium.new_page(viewport={"width": 1280, "height": 900}), f"{(tmp_path / 'site').as_uri()}/index.html")
    own.page.set_default_timeout(_LIMIT_SECONDS * 1000)
    own.page.on("pageerror", lambda error: own.errors.append(str(error)))
    own.page.on("request", lambda asked: own.hosts.add(asked.url.rpartition("/site/")[0]))
    own.page.on("dialog", lambda dialog: (own.errors.append(dialog.message), dialog.dismiss()))
    own.page.add_init_script(_WATCH)
    yield own
    assert own.errors == []
    assert own.hosts == {tmp_path.as_uri()}
    assert own.page.evaluate("window.broken") == []
    own.page.close()


def test_an_export_opens_from_a_file_and_shows_what_python_computes(opened, viewed, tmp_path):  # noqa: F811
    _train(viewed)
    source = _export(viewed, tmp_path / "site", run="r0")
    whole, tokens = viewed.store.get("g0.0-0"), show_tokens(source, Asked({"trajectory": "g0.0-0"}, {}))

    text = opened.open("#/trajectory/g0.0-0?step=1")
    assert re.search(r"Learned by\s+update 1\s+advantage \+0\.50", text)
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
    opened.page.evaluate("location.hash = '#/trajectory/g1.0-0'")
    opened.page.get_by_text("This is not in the export").wait_for()
    assert "of 15 matching trajectories" in opened.page.inner_text("footer")
    assert "agent-layer query --run '<r>'" in opened.page.inner_text("footer")


def test_filters_of_an_export_find_what_the_store_finds(opened, viewed, tmp_path):  # noqa: F811
    _export(viewed, tmp_path / "site")

    opened.open("#/trajectories")
    assert opened.page.inner_text("[data-count]") == "24"
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


def test_sixty_hostile_strings_stay_text_in_an_export(opened, viewed, tmp_path):  # noqa: F811
    _store(viewed.store, "hostile", "constructor", HOSTILE)
    _export(viewed, tmp_path / "site", run="constructor")
    data = "".join(path.read_text() for path in (tmp_path / "site" / "data").iterdir())

    assert not {"<", "&", "\u2028", "\u2029"} & set(data)
    for view in ("", "?tab=tokens", "?tab=forks"):
        assert "alert(1)" in opened.open(f"#/trajectory/hostile.0-0{view}")
        assert opened.page.evaluate("'owned' in window || 'owned' in {}") is False
        assert opened.page.evaluate(_ATTRIBUTES) == []
        assert "SCRIPT" not in opened.page.evaluate(_ELEMENTS)
    opened.open("#/trajectory/hostile.0-0")
    said = opened.page.locator("main .said.user pre").evaluate_all("all => all.map(one => one.textContent)")
    assert said == list(HOSTILE)


def _visible(text, token_id):
    return f"⟨{token_id}⟩" if text is None else text


def test_raster_images_are_seen_and_nothing_else_is_loaded(opened, tab, viewed, tmp_path):  # noqa: F811
    parts = [
        shown(data_url(make_png(64))),
        shown(data_url(SVG, "image/svg+xml")),
        shown(REMOTE),
        {"$image": "../../info"},
    ]
    store_message(viewed.store, "i.0-0", parts, outputs=[[shown(data_url(make_png(32))), {"text": "a drawing"}]])
    _export(viewed, tmp_path / "site")

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
    assert len(list((tmp_path / "site" / "images").iterdir())) == 2
