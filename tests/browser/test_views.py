"""The page in Chromium over a generated store: its numbers are the API's, and each part says what it shows."""

import re
import time
from functools import partial

import pytest

from agent_layer.cli.services.view import archive_settings
from agent_layer.engines import Engine, EngineRegistry, register_policy
from agent_layer.schema import PolicyVersion
from agent_layer.store import find_unindexed, open_store
from agent_layer.view import ReadContext, build_view_app, find_cooled

from ..builders import attempt, call, sampled
from ..stored import damage, put_segment
from ..viewing import store_update
from ..waiting import wait_until
from .tabs import open_tab, serve_page


def test_a_fresh_tab_fetches_the_page_in_four_answers(tab):
    tab.open("#/trajectories")
    fetched = tab.page.evaluate("performance.getEntriesByType('resource').map(one => new URL(one.name).pathname)")

    assert sorted(one for one in fetched if not one.startswith("/api/")) in (
        ["/app.js", "/css/page.css", "/early.js"],
        ["/app.js", "/css/page.css", "/early.js", "/icon.svg"],
    )


@pytest.mark.parametrize(
    ("view", "waited_for"),
    [
        ("#/runs", ["runs"]),
        ("#/run/r0", ["runs/r0"]),
        ("#/group/g0", ["groups/g0"]),
        ("#/trajectories?run=r0&columns=task", ["query?run=r0&limit=64"]),
        ("#/trajectory/g0.0-0", ["trajectories/g0.0-0"]),
        (
            "#/trajectory/g0.0-0?tab=tokens",
            ["trajectories/g0.0-0", "trajectories/g0.0-0/tokens?from=0&to=4096"],
        ),
    ],
)
def test_what_a_view_waits_for_is_asked_before_its_script_is_here_and_once(tab, view, waited_for):
    questions = []
    tab.page.on("request", lambda one: questions.append(one.url.partition("/api/v1/")[2]))
    tab.hold("**/api/v1/events*")  # once it is open, everything is asked again
    scripts = tab.hold("**/app.js")
    tab.page.goto(tab.address + view, wait_until="commit")
    wait_until(lambda: tab.page.wait_for_timeout(10) or (scripts and [one for one in questions if one] == waited_for))
    scripts.pop().continue_()
    tab.page.wait_for_selector("h1")
    tab.page.wait_for_selector(".loading", state="detached")

    assert {one: questions.count(one) for one in waited_for} == dict.fromkeys(waited_for, 1)
    assert tab.errors == []


@pytest.mark.parametrize("view", ["#/run/r0", "#/trajectories?run=r0", "#/learning/r0", "#/fleet"])
def test_parts_stand_in_one_order_whichever_answer_is_first(tab, view):
    parts = "[...document.querySelectorAll('main :is(h1, section, dl)')].map(one => one.ariaLabel ?? one.tagName)"
    tab.open(view)
    expected, waiting = tab.page.evaluate(parts), tab.hold("**/api/v1/**")
    tab.page.goto("about:blank")
    tab.page.goto(tab.address + view)
    tab.page.wait_for_selector(".loading")
    wait_until(partial(_release, tab, waiting))

    assert tab.page.evaluate(parts) == expected


def _release(tab, waiting):
    """Let the newest answer that waits come; True once none is awaited."""
    tab.page.wait_for_timeout(10)
    if waiting:
        waiting.pop(0).continue_()
    return not waiting and tab.page.locator(".loading").count() == 0


def test_numbers_are_those_of_the_api(tab):
    counts = tab.ask("runs/r0")["counts"]
    text = tab.open("#/run/r0")
    assert re.search(rf"Trajectories\s+{counts['trajectories']}\s+{counts['accepted']} accepted", text)
    assert f"{100 * counts['success_rate']:.0f} %" in text
    tab.open("#/trajectories?run=r0&accepted=1")
    assert tab.page.inner_text("[data-count]") == str(counts["accepted"])
    rows = tab.page.locator("tbody tr[aria-rowindex]").all_inner_texts()
    assert len(rows) == counts["accepted"]


def test_a_cut_facet_unfolds_and_an_engine_is_filter_and_column(tab):
    counts = {one["value"]: one["count"] for one in tab.ask("facets?run=r0")["facets"]["engine"]}
    tab.open("#/trajectories?run=r0&columns=trajectory,engines")
    box = tab.page.locator("[data-facet=engine]")
    answer = dict(box.locator("a").evaluate_all("all => all.map(one => one.innerText.split('\\n'))"))
    hidden = len(counts) - len(answer)
    assert hidden > 0
    box.get_by_role("button", name=f"{hidden} more values of engine").click()
    answer = dict(box.locator("a").evaluate_all("all => all.map(one => one.innerText.split('\\n'))"))
    assert answer == {engine.removeprefix("http://"): str(num) for engine, num in counts.items()}

    last = [*counts][-1]
    box.locator("a").last.click()
    wait_until(lambda: tab.page.inner_text("[data-count]") == str(counts[last]))
    assert last.removeprefix("http://") in tab.page.inner_text("tbody tr[aria-rowindex] >> nth=0")
    row = tab.ask(f"query?engine={last}&limit=1")["items"][0]["trajectory_id"]
    assert f"engine {last.removeprefix('http://')}" in tab.open(f"#/trajectory/{row}")
    tab.open(f"#/trajectory/{row}?tab=tokens&step=1")
    assert tab.page.inner_text("[data-fact=Engine]") == last.removeprefix("http://")


def test_hover_tells_id_and_log_probability_of_a_token(tab):
    tokens = tab.ask("trajectories/g0.0-0/tokens")
    at = tokens["sampled"].index(1)
    tab.open("#/trajectory/g0.0-0?tab=tokens")
    tab.page.hover(f"#t{at}")

    assert tab.page.inner_text("[data-fact='Id']") == str(tokens["ids"][at])
    assert float(tab.page.inner_text("[data-fact='Log-probability']").replace("\u2212", "-")) == pytest.approx(
        tokens["logprobs"][at], abs=1e-4
    )


def test_the_health_sentence_names_its_object_and_leads_to_it(fresh_tab, redis, keys):
    for number in range(2):
        version = PolicyVersion(run="r0", number=number, location="w", created_at=time.time() - 725.0)
        register_policy(redis, keys, version, lambda _: None)
    own = {"run": "r0", "model": "m", "location": "w", "logprobs_mode": "processed", "state": "serving", "epoch": 0}
    for number in range(2):
        EngineRegistry(redis, keys).register(Engine(url=f"http://10.0.0.{number}:8000", version=number, **own))
    assert "look: An engine serves old weights" in fresh_tab.open("#/runs")
    text = fresh_tab.open("#/run/r0")
    assert re.search(r"serves old weights \(http://10.0.0.0:8000\), since .* UTC. .*: 12 min, limit 10 min", text)

    fresh_tab.page.click("[data-seen=engine_behind]")
    fresh_tab.page.wait_for_selector("[data-fleet]")
    wait_until(lambda: "10.0.0.0:8000" in fresh_tab.page.locator("tr[aria-selected=true]").all_inner_texts()[0])
    assert (
        fresh_tab.page.inner_text("[data-fleet]") == "Engine 10.0.0.0:8000 serves v0 and has been behind v1 for 12 min."
    )
    assert "behind v1 for 12 min" in fresh_tab.page.inner_text("tr[aria-selected=true]")


def test_a_step_without_an_update_leads_to_those_beside_it(tab):
    text = tab.open("#/update/r0/3")
    assert "it is not made yet; the newest is 2" in text
    tab.page.click("[data-missing] a:text('Update 2')")
    tab.page.get_by_text("From the queue into the update").wait_for()
    assert tab.errors == []


def test_an_update_tells_its_versions_apart_marks_old_ones_and_ends_the_arrows(fresh_tab, fresh):
    store_update(fresh.store, version=4)
    lanes = fresh_tab.ask("runs/r0/updates/1")["rollouts"]
    versions = {one["policy_max"] for one in lanes}
    fresh_tab.open("#/update/r0/1")
    colours = "all => [...new Set(all.map(one => getComputedStyle(one)[{}]))].sort()"
    drawn = fresh_tab.page.locator(".lanes [data-phase=wait]").evaluate_all(colours.format("'fill'"))
    answer = fresh_tab.page.locator("[data-versions] .swatch").evaluate_all(colours.format("'backgroundColor'"))
    assert answer == drawn
    assert len(answer) == len(versions)
    assert f"sampled by v{min(versions)}: " in fresh_tab.page.inner_text("[data-versions]")
    assert f"{4 - min(versions)} versions old" in fresh_tab.page.inner_text("[data-versions]")
    for way in ("Previous", "Next"):
        wait_until(fresh_tab.page.get_by_label(f"{way} update").is_disabled)

    fresh_tab.page.set_viewport_size({"width": 390, "height": 844})
    box = fresh_tab.page.locator(".lanes")
    wait_until(lambda: box.get_attribute("viewBox").startswith("0 0 3"))
    ends = box.locator("text").evaluate_all("all => all.map(one => one.getBoundingClientRect().right)")
    assert max(ends) <= box.evaluate("one => one.getBoundingClientRect().right") + 1
    assert fresh_tab.page.locator(".lanes a").first.bounding_box()["height"] >= 24


def test_a_legend_has_the_colours_of_its_marks(tab):
    tab.open("#/trajectory/g0.0-0?tab=tokens&colour=version")
    colours = "all => [...new Set(all.map(one => getComputedStyle(one).backgroundColor))].sort()"
    sampled = tab.page.locator(".t:not(.given)").evaluate_all(colours)

    assert tab.page.locator(".legend .swatch").evaluate_all(colours) == sampled
    assert len(sampled) == len({one for one in tab.ask("trajectories/g0.0-0/tokens")["versions"] if one is not None})


def test_tiles_and_the_table_of_updates_fill_their_width(tab):
    tab.open("#/run/r0")
    for width in (390, 420, 700, 1280):
        tab.page.set_viewport_size({"width": width, "height": 844})
        ends = tab.page.locator(".tiles .tile").evaluate_all("all => all.map(one => one.getBoundingClientRect().right)")
        assert max(ends) - ends[-1] < 1, width
        box = tab.page.locator("section[aria-label=Updates] .scroll-x")
        assert box.evaluate("one => one.scrollWidth <= one.clientWidth"), width


def test_fleet_of_a_bucket_alone_says_that_nothing_of_it_is_there(viewed, chromium):
    app = build_view_app(ReadContext(viewed.settings, viewed.store, is_archive=True))
    with serve_page(app) as address, open_tab(chromium, address) as tab:
        assert "This page shows a bucket alone" in tab.open("#/fleet")
        assert tab.page.locator("main section").count() == 0
        tab.page.get_by_text("from a bucket").wait_for()
        assert tab.errors == []


def test_runs_that_only_the_bucket_has_are_marked_where_they_are_named(fresh, chromium, tmp_path):
    beside = {"redis_url": f"{fresh.settings.redis_url}?db=1"}  # as good as the server that a page starts for a bucket
    alone = archive_settings(fresh.settings, fresh.settings.objects_location, tmp_path / "alone")
    alone = alone.model_copy(update=beside)
    put_segment(fresh.store, *attempt("old.0-0", *call("old.0-0", "a", sampled(1, 2)), run="old", score=1.0))
    archive = open_store(alone)
    archive.admin.reindex(only=find_unindexed(fresh.store.redis, fresh.store.keys, fresh.store.objects))
    live, bucket = fresh.source, ReadContext(alone, archive, is_archive=True, is_cooled=True)
    live.cooled = find_cooled(live, bucket)
    with serve_page(build_view_app(live)) as address, open_tab(chromium, address) as tab:
        assert tab.open("#/runs").count("bucket alone") == 1
        assert "has no queue" in tab.open("#/run/old")
        assert "bucket alone" in tab.open("#/trajectory/old.0-0")
        assert "bucket" not in tab.open("#/run/r0")
        tab.open("#/trajectories")
        tab.page.locator("[data-cooled] a").click()
        tab.page.locator("[data-count]").get_by_text("1", exact=True).wait_for()
        assert tab.page.locator("[data-cooled]").count() == 0
        assert tab.errors == []


def test_a_damaged_rollout_is_marked_in_group_update_and_diff(fresh, fresh_tab):
    store_update(fresh.store)
    damage(fresh.store, "g0.1-0")
    for view in ("#/group/g0", "#/update/r0/1", "#/diff/g0.0-0/g0.1-0"):
        text = fresh_tab.open(view)
        assert "part of g0.1-0" in text, view
        assert "both are equal" not in text
        if view == "#/group/g0":
            assert fresh_tab.page.get_by_text("damaged", exact=True).count() == 1
