"""Changing things from the page: only where the server allows it, and only after the page has said what will happen."""

import json
from pathlib import Path

import pytest

from agent_layer.dispatcher import Dispatcher
from agent_layer.dispatcher.models import Report
from agent_layer.schema.task import Task
from agent_layer.view import build_view_app

from ..builders import attempt
from ..queues import Queue
from ..stored import write_segment
from ..viewing import API_KEY, SECRET
from ..waiting import wait_until
from .tabs import find_faults, open_tab, serve_page

_ORDERS = "[data-order]"


@pytest.fixture
def writing(fresh, chromium):
    """A tab whose server takes writes, not yet opened by the operator."""
    app = build_view_app(fresh.source, writable=fresh.store, operator_token="secret")
    with serve_page(app) as address, open_tab(chromium, address) as tab:
        yield tab
        assert tab.errors == []


@pytest.fixture
def queued(redis, keys, fresh):
    """A run with three dead letters, one that waits, and a worker."""
    queue, dispatcher = Queue(redis, keys, fresh.settings), Dispatcher(redis, fresh.settings)
    dispatcher.submit([Task(id=f"t{number}", run="steered", input="x") for number in range(4)], group_size=1)
    leases = queue.claim("w", 3)
    queue.heartbeat("w", b"{}", [])
    errors = ["user: no such tool", "user: no such tool", "infra: the disk is full"]
    ended = zip(leases, errors, strict=True)
    queue.settle([Report(lease=lease, ending="dead", error=error) for lease, error in ended])
    return dispatcher


def _order(tab, name, expected, /, **fields):
    """Press a button, read what it says, fill in what it asks for, and say yes."""
    tab.page.click(f"[data-order='{name}']")
    dialog = tab.page.locator("dialog[open]")
    assert expected in dialog.inner_text()
    for field, value in {"by": "Ada", **fields}.items():
        dialog.locator(f"[name='{field}']").fill(value)
    dialog.locator("[type='submit']").click()
    dialog.wait_for(state="detached")


def test_a_page_that_only_reads_has_no_button_that_writes(fresh_tab, queued):
    for view in ("#/fleet", "#/failures", "#/trajectory/g0.0-0"):
        fresh_tab.open(view)
        assert fresh_tab.page.locator(_ORDERS).count() == 0
    assert "infra: the disk is full" in fresh_tab.open("#/failures")
    assert queued.stats().num_dead == 3


def test_a_reader_gets_the_buttons_with_the_key_alone(writing):
    writing.open("#/trajectory/g0.0-0")
    writing.page.wait_for_selector(_ORDERS)
    assert writing.page.locator(_ORDERS).all_inner_texts() == ["Unlock"]
    writing.page.click(_ORDERS)
    dialog = writing.page.locator("dialog[open]")
    dialog.locator("[name='by']").fill("Ada")
    dialog.locator("[name='key']").fill("wrong")
    dialog.locator("[type='submit']").click()
    dialog.locator("[role='alert']").wait_for()
    dialog.locator("[name='key']").fill(API_KEY)
    dialog.locator("[type='submit']").click()
    writing.page.wait_for_selector("[data-order='Reward']")
    assert API_KEY not in writing.page.evaluate("document.cookie + location.href + JSON.stringify({...localStorage})")


def test_a_reward_on_the_page_supersedes(writing, fresh):
    writing.open("?token=secret#/trajectory/g0.0-0")
    _order(writing, "Reward", "stays readable", score="0.125", comment="right, but slow")
    writing.page.wait_for_selector("text=right, but slow")

    assert fresh.store.row("g0.0-0").reward == 0.125
    assert "superseded" in writing.page.inner_text("main")
    (line,) = writing.ask("writes")["items"]
    assert (line["by"], line["subject"], line["after"]["score"]) == ("Ada", "g0.0-0", 0.125)
    writing.page.click("[data-order='Reward']")
    writing.page.wait_for_selector("dialog[open]")
    writing.page.keyboard.press("Escape")
    writing.page.locator("dialog[open]").wait_for(state="detached")
    assert len(writing.ask("writes")["items"]) == 1


def test_a_reward_is_withdrawn_and_a_step_is_judged_on_the_page(writing, fresh):
    before = fresh.store.row("g0.0-0").reward
    writing.open("?token=secret#/trajectory/g0.0-0")
    stays = f"of the rollout stays \N{MINUS SIGN}{-before:g}"
    _order(writing, "judge step 1", stays, score="0.25", comment="a good step")
    writing.page.wait_for_selector("text=a good step")
    whole = fresh.store.get("g0.0-0")
    assert [(one.scope, one.step, one.score) for one in whole.rewards if one.source == "human"] == [("step", 1, 0.25)]
    assert fresh.store.row("g0.0-0").reward == before
    assert "reward 0.25" in writing.page.inner_text("#step-1")

    _order(writing, "withdraw reward of step 1", "0.25 by human counts no more")
    writing.page.locator("[data-order='withdraw reward of step 1']").wait_for(state="detached")
    _order(writing, "withdraw reward", "nothing takes its place", comment="by mistake")
    writing.page.wait_for_selector("text=by mistake")
    assert fresh.store.row("g0.0-0").reward is None
    assert "reward 0.25" not in writing.page.inner_text("#step-1")
    assert [one["after"]["score"] for one in writing.ask("writes")["items"]] == [None, None, 0.25]


def test_runs_and_workers_are_steered_from_fleet(writing, queued):
    writing.open("?token=secret#/fleet")
    _order(writing, "Pause", "keep their places", why="look at the grader")
    writing.page.wait_for_selector("text=look at the grader")
    assert [(one.run, one.paused) for one in queued.runs(["steered"])] == [("steered", "look at the grader")]
    _order(writing, "Resume", "look at the grader")
    writing.page.wait_for_selector("[data-order='Pause']")
    _order(writing, "Share", "has the weight 1", weight="2.5", quota="7")
    assert [(one.weight, one.quota, one.paused) for one in queued.runs(["steered"])] == [(2.5, 7, None)]
    _order(writing, "Drain", "exits")
    changes = writing.page.locator("section[aria-label='Changes'] tbody tr")
    changes.nth(3).wait_for()
    assert [row.split("\t")[1:4] for row in changes.all_inner_texts()] == [
        ["Ada", action, subject]
        for action, subject in (("drain", "w"), ("share", "steered"), ("resume", "steered"), ("pause", "steered"))
    ]
    writing.page.locator("[data-order='Drain']").wait_for(state="detached")
    assert [one.is_draining for one in queued.workers()] == [True]


def test_dead_letters_are_retried_and_dropped_in_bulk_from_failures(writing, queued):
    writing.open("?token=secret#/failures?run=steered")
    writing.page.click("text=user: no such tool >> nth=0")
    assert writing.page.locator("input[type=checkbox]:checked").count() == 2
    _order(writing, "retry", "Retry 2 rollouts?")
    writing.page.locator("input[type=checkbox]").nth(1).wait_for(state="detached")
    assert (queued.stats().num_dead, queued.stats().num_queued) == (1, 3)
    writing.page.click("text=Choose all 1")
    _order(writing, "drop", "cannot be retried")
    writing.page.locator("[data-order='drop']").wait_for(state="detached")
    assert (queued.stats().num_dead, queued.stats().num_queued) == (0, 3)


def test_what_writes_has_names_contrast_and_room_on_a_small_screen(writing, queued):  # noqa: ARG001 - its dead letters
    writing.page.set_viewport_size({"width": 390, "height": 844})
    writing.page.emulate_media(reduced_motion="reduce")
    for view, button in (
        ("#/fleet", "Share"),
        ("#/failures", "retry"),
        ("#/trajectory/g0.0-0", "Reward"),
        ("#/review?run=r0", "tasks"),
    ):
        writing.open(f"?token=secret{view}")
        if button == "retry":
            writing.page.click("text=Choose all 3")
        if button == "tasks":
            writing.page.click("[data-choose]")
        writing.page.click(f"[data-order='{button}']")
        assert find_faults(writing.page) == []
        assert writing.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_queue_is_judged_by_keys_and_nothing_is_overwritten(writing, fresh):
    queue = [row.trajectory_id for row in fresh.store.query(run="r0", order="oldest", limit=200).items]
    before = {one: fresh.store.get(one).rewards for one in queue[:2]}
    writing.open("?token=secret#/review?run=r0&order=oldest")
    writing.page.fill("[name='by']", "Ada")
    writing.page.click("h1")
    writing.page.keyboard.press("1")
    assert f"Enter gives 1 to {queue[0]}" in writing.page.inner_text("[data-judge]")
    writing.page.keyboard.press("Escape")
    assert f"Judge {queue[0]}" in writing.page.inner_text("[data-judge]")
    writing.page.keyboard.press("5")
    writing.page.keyboard.press("Enter")
    writing.page.wait_for_selector(f"text=Judge {queue[1]}")
    writing.page.click("h1")
    writing.page.keyboard.press("0")
    writing.page.keyboard.press("c")
    writing.page.keyboard.type("1 of the hints was ignored")
    writing.page.keyboard.press("Enter")
    writing.page.wait_for_selector(f"text=Judge {queue[2]}")

    assert "2 judged" in writing.page.inner_text("main")
    for name, score, comment in ((queue[0], 0.5, None), (queue[1], 0.0, "1 of the hints was ignored")):
        rewards = fresh.store.get(name).rewards
        assert [one for one in rewards if one in before[name]] == before[name]
        (given,) = [one for one in rewards if one not in before[name]]
        assert (given.score, given.comment, given.source) == (score, comment, "human")
        assert given.supersedes == before[name][0].reward_id
    writing.page.keyboard.press("k")
    writing.page.wait_for_selector("text=by human: 1 of the hints was ignored")


def test_a_queue_is_labelled_by_keys_and_a_label_is_withdrawn(writing, fresh):
    queue = [row.trajectory_id for row in fresh.store.query(run="r0", order="oldest", limit=200).items]
    writing.open("?token=secret#/review?run=r0&order=oldest")
    writing.page.fill("[name='by']", "Ada")
    writing.page.click("h1")
    writing.page.keyboard.press("l")
    writing.page.keyboard.type("verdict=wrong")
    writing.page.keyboard.press("Enter")
    writing.page.wait_for_selector(f"text=Judge {queue[1]}")
    writing.page.click("h1")
    writing.page.keyboard.press("7")  # the label just given
    writing.page.keyboard.press("5")
    assert f"Enter labels {queue[1]} verdict=wrong, and gives 0.5" in writing.page.inner_text("[data-judge]")
    writing.page.keyboard.press("Enter")
    writing.page.wait_for_selector(f"text=Judge {queue[2]}")

    found = fresh.store.query(labels={"verdict": "wrong"}, order="oldest").items
    assert [(row.trajectory_id, row.reward) for row in found][1:] == [(queue[1], 0.5)]
    assert found[0].trajectory_id == queue[0]
    assert fresh.store.get(queue[0]).given_labels[0].source == "human"
    writing.page.keyboard.press("k")
    writing.page.click("[data-label='verdict']")
    writing.page.wait_for_selector(f"tbody >> text={queue[0][:8]}")
    assert writing.page.locator("tbody tr").count() == 2
    writing.open(f"?token=secret#/trajectory/{queue[0]}")
    _order(writing, "withdraw verdict", "stays readable")
    writing.page.wait_for_selector("[data-labels] >> text=withdrawn")
    assert [row.trajectory_id for row in fresh.store.query(labels={"verdict": "wrong"}).items] == [queue[1]]
    _order(writing, "Label", "Earlier ones stay readable", name="verdict", value="<b>fine</b>")
    writing.page.wait_for_selector("[data-label='verdict'] >> text=verdict=<b>fine</b>")
    assert [one["after"]["value"] for one in writing.ask("writes")["items"] if one["action"] == "labels"] == [
        *("<b>fine</b>", None, "wrong", "wrong")
    ]


def test_a_queue_goes_on_beyond_its_first_page(fresh_tab, fresh):
    records = [one for at in range(203) for one in attempt(f"q{at:03}.0-0", at=float(at), run="long", status="running")]
    write_segment(fresh.store, *records)
    names = [row.trajectory_id for row in fresh.store.query(run="long", order="oldest", limit=300).items]
    assert "200 of this query, and more" in fresh_tab.open("#/review?run=long&order=oldest")

    fresh_tab.page.route("**/query?*cursor=*", lambda route: route.abort())
    fresh_tab.open("#/review?run=long&order=oldest&at=199")
    fresh_tab.page.locator("[role=alert]").wait_for()
    fresh_tab.page.get_by_text(f"open {names[199]}").wait_for()
    fresh_tab.page.unroute("**/query?*cursor=*")
    fresh_tab.page.keyboard.press("k")
    wait_until(lambda: fresh_tab.page.inner_text("[data-queued]") == "203 of this query")
    fresh_tab.page.keyboard.press("j")
    fresh_tab.page.keyboard.press("j")
    fresh_tab.page.get_by_text(f"open {names[200]}").wait_for()
    shown = fresh_tab.page.locator("nav[aria-label=Queue] a").evaluate_all("all => all.map(one => one.title)")
    assert shown == names


def test_a_selection_is_downloaded_as_tasks_and_as_a_dataset(writing, fresh):
    queue = [row.trajectory_id for row in fresh.store.query(run="r0", order="oldest", limit=200).items]
    writing.open("?token=secret#/review?run=r0&order=oldest")
    for _ in range(2):
        writing.page.keyboard.press("s")
        writing.page.keyboard.press("j")
    taken = {}
    for what, answer in (("tasks", "Nothing is queued"), ("dataset", "store export jsonl")):
        with writing.page.expect_download() as download:
            _order(writing, what, answer)
        assert download.value.suggested_filename == f"{what}.jsonl"
        taken[what] = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    assert [(one["id"], one["grading"]) for one in taken["tasks"]] == [("t0", SECRET)]
    assert [one["trajectory_id"] for one in taken["dataset"]] == queue[:2]


def test_a_reader_reviews_without_judging(tab):
    assert "--allow-writes" in tab.open("#/review?run=r0")
    assert tab.page.locator("[data-judge]").count() == tab.page.locator(_ORDERS).count() == 0
