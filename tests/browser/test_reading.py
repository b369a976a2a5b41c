"""What a reader sees at a glance: values under the pointer, details beside it, orders, counts, a telephone."""

import re

from agent_layer.health import STEP_CHECKS

from ..waiting import wait_until

_PHONE = {"width": 390, "height": 844}
_ROW_PX = 24


def test_a_chart_tells_the_values_of_the_point_under_the_pointer(tab):
    points = [one for one in tab.ask("runs/r0/learning?by=run")["points"] if one["success_rate"] is not None]
    last = max(points, key=lambda one: one["version"])
    tab.open("#/learning/r0?by=run")
    expected = [f"v{last['version']}", "r0", f"{100 * last['success_rate']:.0f}", "%"]
    wait_until(lambda: _point_at_the_end(tab) == expected)

    tab.page.mouse.move(5, 5)
    tab.page.locator(".u-over").first.locator(".tip").wait_for(state="hidden")


def _point_at_the_end(tab):
    """Point near the last point of a chart, and return what it tells; it may be drawn again at any moment."""
    tab.page.mouse.move(5, 5)
    if box := tab.page.locator(".u-over").first.bounding_box():
        tab.page.mouse.move(box["x"] + box["width"] - 3, box["y"] + box["height"] / 2)
    tips = tab.page.locator(".u-over .tip").all_inner_texts()
    return tips[0].split() if tips else []


def test_details_of_a_token_are_in_sight_and_its_box_has_no_empty_half(tab):
    limit = next(one.stop for one in STEP_CHECKS if one.name == "logprob_gap")
    for size in ({"width": 1280, "height": 700}, _PHONE):
        tab.page.set_viewport_size(size)
        tab.open("#/trajectory/g0.0-0?tab=tokens&colour=ratio")
        grid = tab.page.locator(".token-grid")
        assert grid.bounding_box()["height"] <= _ROW_PX * (tab.page.locator(".token-row").count() + 1)
        tab.page.hover(".t:not(.given) >> nth=0")
        facts = tab.page.locator("[data-fact=Engine]").bounding_box()
        assert facts["y"] + facts["height"] <= size["height"]
    assert f"full from {limit} nats" in tab.page.inner_text("main")


def test_a_table_is_ordered_by_its_heads_and_says_which_rows_are_in_sight(tab):
    count = tab.ask("query?run=r0&limit=500")["items"]
    tab.page.set_viewport_size({"width": 1280, "height": 500})
    tab.open("#/trajectories?run=r0")
    head = tab.page.locator("th", has_text="Reward")
    assert tab.page.locator("th[aria-sort]").inner_text() == "Started ↓"
    head.locator("a").click()
    wait_until(lambda: head.get_attribute("aria-sort") == "descending")
    expected = [one["trajectory_id"] for one in tab.ask("query?run=r0&order=reward&limit=3")["items"]]
    wait_until(
        lambda: tab.page.locator("tbody td:first-child a").evaluate_all("all => all.map(a => a.title)")[:3] == expected
    )
    assert re.match(rf"1\u2013\d+ of {len(count)}: scroll", tab.page.inner_text(".seen-rows"))
    assert f"{len(count)} trajectories" in tab.page.inner_text(".page-head")


def test_versions_to_filter_by_are_newest_first_and_a_chosen_value_leaves_the_others(tab):
    found = tab.ask("facets")["facets"]
    versions = sorted((one["value"] for one in found["policy"]), reverse=True)
    for name, answer in (("policy", [f"v{one}" for one in versions]), ("run", [one["value"] for one in found["run"]])):
        tab.open("#/trajectories")
        values = tab.page.locator(f"[data-facet={name}] a .cut")
        assert values.all_inner_texts() == answer
        values.last.click()
        tab.page.locator(f"[data-facet={name}] a.on").wait_for()
        wait_until(lambda values=values, answer=answer: values.all_inner_texts() == answer)


def test_members_of_a_group_stand_in_line_and_name_their_engine(tab):
    row = tab.ask("groups/g0")["members"][1]["row"]
    assert "Group g0" in tab.open("#/group/g0")
    tops = tab.page.locator(".sibling .facts + .measure").evaluate_all("all => all.map(one => one.offsetTop)")
    assert len(set(tops)) == 1
    assert f"engine {row['engines'][0].removeprefix('http://')}" in tab.page.locator(".sibling").nth(1).inner_text()


def test_help_lists_each_key_that_a_field_names_and_an_unknown_address_is_named(tab):
    assert "This page has no view nowhere." in tab.open("#/nowhere")
    tab.open("#/trajectories")
    named = re.findall(
        r"\( (.) \)", " ".join(tab.page.locator("input").evaluate_all("all => all.map(one => one.placeholder)"))
    )
    tab.page.keyboard.press("?")
    assert len(named) == 2
    assert set(named) <= set(tab.page.locator("dialog kbd").all_inner_texts())


def test_a_telephone_shows_whole_drawings_and_links_for_fingers(tab):
    tab.page.set_viewport_size(_PHONE)
    for view in ("#/trajectory/g0.0-0", "#/trajectory/g0.0-0?tab=forks", "#/update/r0/1"):
        tab.open(view)
        ends = tab.page.locator("svg.timeline :is(rect, text)").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().right)"
        )
        assert max(ends) <= _PHONE["width"], view
    tab.open("#/run/r0")
    heights = tab.page.locator(".table td a").evaluate_all("all => all.map(one => one.getBoundingClientRect().height)")
    assert heights
    assert min(heights) >= 24
    assert tab.page.locator("[data-live]").is_visible()
