"""The page: first rows over a million trajectories, a trajectory of 128 k tokens in Chromium, the load of open pages.

Floors of the same run: the bare reading of as many rows from Redis, a static page in the same Chromium, the gateway.
"""

import asyncio
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from statistics import median, quantiles

import requests
from bench_table import Figure
from gateway_load import CALLS_PER_ROLLOUT, Load, ask_all
from playwright.sync_api import Browser, Page, sync_playwright
from proxies import Proxy, open_doors, start_bare, start_ours, start_process
from store_facts import make_facts
from store_fill import fill
from store_servers import run_servers
from view_records import LONG, NUM_STEPS, NUM_TOKENS, long_records
from view_scroll import scroll_frames

from agent_layer.infra import free_port
from agent_layer.recorder import open_recorder
from agent_layer.schema import TokenIds, Vocabulary
from agent_layer.settings import Settings
from agent_layer.state import store_vocabulary
from agent_layer.store import Index, Store, open_store

__all__ = ["measure_view"]

NUM_ROWS, NUM_ASKED, NUM_OVERVIEWS = 50, 40, 10
NUM_CALLS, NUM_CLIENTS, NUM_PAGES = 10_000, 4, 5
_OVERVIEWS = ("facets?", "facets?run=run-1&status=completed", "facets?reward=0.5..", "histogram?bins=20", "runs?")
_SHOWN = """selector => new Promise(done => {
  const look = () => requestAnimationFrame(document.querySelector(selector)
    ? () => setTimeout(() => done(performance.now())) : look);
  look();
})"""
"""Looks itself, frame by frame: a browser that is asked from outside paints later."""
_OPTIONS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def measure_view(directory: Path, size: int = 1_000_000) -> list[Figure]:
    """Measure all figures of the page."""
    figures: list[Figure] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=_chromium(), args=_OPTIONS)
        with run_servers(directory) as servers:
            settings = servers.settings(directory / "store")
            fill(settings, 0, size)
            store = open_store(settings)
            with _serve(settings, directory) as view:
                figures += _measure_rows(browser, view, store, size)
                figures += _measure_overviews(view, store, size)
            settings = servers.settings(directory / "long", namespace="long")
            _store_long(settings)
            with _serve(settings, directory) as view:
                figures += _measure_long(browser, view)
        figures += _measure_open_pages(browser, directory / "live")
        browser.close()
    return figures


def _chromium() -> str:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), "chromium")


@contextmanager
def _serve(settings: Settings, directory: Path) -> Iterator[Proxy]:
    port = free_port()
    command = [sys.executable, "-m", "agent_layer.cli", "view", f"--port={port}"]
    with start_process(command, port, directory / "view.log", settings.environment()) as pid:
        yield Proxy(name=f"http://127.0.0.1:{port}/", pid=pid, new_door=lambda: None)


def _measure_rows(browser: Browser, view: Proxy, store: Store, size: int) -> Iterator[Figure]:
    """Ask for the first rows by each order, over HTTP and in a tab."""
    session, index, dice = requests.Session(), Index(store.redis, store.keys), Random(7)
    known = [make_facts(dice.randrange(size)).trajectory_id for _ in range(NUM_ROWS)]
    floor = _milliseconds(lambda: index.rows(known))
    for question in ("order=newest", "run=run-1&order=reward", "run=run-1&status=completed&order=newest"):
        address = f"{view.name}api/v1/query?limit={NUM_ROWS}&{question}"
        began = time.perf_counter()
        session.get(address, timeout=60).raise_for_status()
        first = 1000 * (time.perf_counter() - began)
        took = _milliseconds(lambda prompt=address: session.get(prompt, timeout=60).raise_for_status())
        yield Figure(
            f"view, {NUM_ROWS} first rows of {size:,} over HTTP, {question}: first, p50/p99 ms (floor: Redis alone)",
            f"{first:.0f}, {_shown(took)}",
            _shown(floor),
            f"{median(took) / median(floor):.1f}",
            "≤ 300",
        )
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{view.name}icon.svg")
    took = [_until(page, f"{view.name}#/trajectories?run=run-1", "tbody tr[aria-rowindex]") for _ in range(5)]
    yield Figure(
        f"view, first rows of {size:,} in a fresh tab: first, median ms (floor: Redis alone)",
        f"{took[0]:.0f}, {median(took):.0f}",
        _shown(floor),
        "",
        "≤ 300",
    )
    page.close()


def _measure_overviews(view: Proxy, store: Store, size: int) -> Iterator[Figure]:
    """Ask for what stands beside the first rows, each time as if the store had just changed; and what Redis spends."""
    session = requests.Session()
    for question in (
        "facets?",
        "facets?run=run-1&status=completed",
        "facets?reward=0.5..",
        "histogram?bins=20",
        "runs?",
    ):
        took, before = list[float](), _redis_seconds(store)
        for _ in range(NUM_OVERVIEWS):
            store.redis.xadd(store.keys.steps, {"bench": ""})  # or the server would send the answer that it has
            began = time.perf_counter()
            session.get(f"{view.name}api/v1/{question}", timeout=60).raise_for_status()
            took.append(1000 * (time.perf_counter() - began))
        spent = 1000 * (_redis_seconds(store) - before) / NUM_OVERVIEWS
        name = f"view, {question} over {size:,}: p50/p99 ms (beside: CPU ms of Redis)"
        yield Figure(name, _shown(took), f"{spent:.0f}", "", "≤ 300")


def _redis_seconds(store: Store) -> float:
    answer = store.redis.info("cpu")
    return answer["used_cpu_user"] + answer["used_cpu_sys"]


def _store_long(settings: Settings) -> None:
    store = open_store(settings)
    vocabulary = Vocabulary(tokenizer_hash="v", sizes=TokenIds([4] * 1000), content=b"word" * 1000)
    store_vocabulary(store.keys, store.objects, vocabulary)
    recorder = open_recorder(settings)
    recorder.append(*long_records())
    recorder.flush(120)


def _measure_long(browser: Browser, view: Proxy) -> Iterator[Figure]:
    """Open a long trajectory and its tokens in a fresh tab each, then scroll."""
    what = f"view, a trajectory of {NUM_STEPS} steps and {NUM_TOKENS:,} tokens"
    plain: list[float] = []
    for name, place, shown in (
        ("steps", f"#/trajectory/{LONG}", ".steps .outline"),
        ("tokens", f"#/trajectory/{LONG}?tab=tokens", ".token-row"),
    ):
        took: list[float] = []
        for _ in range(5):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            plain.append(_until(page, f"{view.name}icon.svg", "svg"))
            took.append(_until(page, f"{view.name}{place}", shown))
            page.close()
        yield Figure(
            f"{what}, first paint of its {name}: first, median ms (floor: a static picture)",
            f"{took[0]:.0f}, {median(took):.0f}",
            f"{median(plain):.0f}",
            f"{median(took) / median(plain):.1f}",
            "≤ 500",
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        _until(page, f"{view.name}{place}", shown)
        page.wait_for_selector("text=loading …", state="detached", timeout=60_000)
        page.wait_for_timeout(500)
        box = ".token-grid" if name == "tokens" else "main"
        frames = scroll_frames(browser, page, box)
        yield Figure(
            f"{what}, scrolling its {name}: script, layout and paint of a frame, p50/p95 ms ({len(frames)} frames)",
            f"{median(frames):.1f}/{quantiles(frames, n=20)[18]:.1f}",
            "",
            "",
            "p95 ≤ 20",
        )
        answer = f"{what}, memory of the tab with its {name}: JS heap / private, MB"
        yield Figure(answer, _memory(page), "", "", "≤ 150")
        page.close()


def _measure_open_pages(browser: Browser, directory: Path) -> Iterator[Figure]:
    """Send calls through a gateway while five pages are open over its store.

    What the pages cost depends on the minutes that they are open, what the gateway costs on the number of calls: the
    ratio of the two is the better, the faster the calls go. The cost per minute tells of the pages alone.
    """
    load = Load(2 << 10, 150, is_streamed=False)
    with ExitStack() as cleanup:
        directory.mkdir()
        bare = cleanup.enter_context(start_bare(directory))
        gateway = cleanup.enter_context(start_ours(directory, bare.new_door().url.removesuffix("/v1")))
        settings = Settings(dir=directory / "ours", run="bench")
        view = cleanup.enter_context(_serve(settings, directory))
        with ThreadPoolExecutor(1) as thread:  # playwright has this thread's loop
            thread.submit(_ask, load, gateway, 10).result()
            contexts = [browser.new_context(viewport={"width": 1280, "height": 900}) for _ in range(NUM_PAGES)]
            places = ("#/runs", "#/run/bench", "#/trajectories", "#/trajectories?run=bench", "#/fleet")
            for context, place in zip(contexts, places, strict=True):
                _until(context.new_page(), f"{view.name}{place}", "h1")
            time.sleep(2)
            before = view.cpu_seconds, gateway.cpu_seconds
            began = time.perf_counter()
            thread.submit(_ask, load, gateway, NUM_CALLS // CALLS_PER_ROLLOUT).result()
            seconds = time.perf_counter() - began
            ours, theirs = view.cpu_seconds - before[0], gateway.cpu_seconds - before[1]
            for context in contexts:
                context.close()
    yield Figure(
        f"view, {NUM_PAGES} open pages over {NUM_CALLS:,} calls ({seconds:.0f} s): CPU s (beside: the gateway)",
        f"{ours:.2f}",
        f"{theirs:.2f}",
        f"{ours / theirs:.3f}",
        "≤ 0.01",
    )
    yield Figure(
        f"view, {NUM_PAGES} open pages, {NUM_CALLS / seconds:.0f} calls a second: CPU s a minute (beside: the gateway)",
        f"{60 * ours / seconds:.2f}",
        f"{60 * theirs / seconds:.2f}",
        "",
        "",
    )


def _ask(load: Load, gateway: Proxy, num_rollouts: int) -> None:
    asyncio.run(ask_all(load, open_doors(gateway, num_rollouts), NUM_CLIENTS))


def _until(page: Page, address: str, selector: str) -> float:
    """Return the milliseconds from the begin of a navigation to the frame that shows it, by the clock of the page."""
    page.goto("about:blank")
    page.goto(address, wait_until="commit")
    return page.evaluate(_SHOWN, selector)


def _memory(page: Page) -> str:
    """Return the JS heap, and what the tab's process has for itself."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    processes = page.context.browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    renderers = [one["id"] for one in processes if one["type"] == "renderer"]
    private = max(map(_private_bytes, renderers))  # the others are empty
    return f"{metrics['JSHeapUsedSize'] / 2**20:.0f} / {private / 2**20:.0f}"


def _private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Private_"))


def _milliseconds(ask: Callable[[], object]) -> list[float]:
    took = list[float]()
    for _ in range(NUM_ASKED):
        began = time.perf_counter()
        ask()
        took.append(1000 * (time.perf_counter() - began))
    return took


def _shown(took: list[float]) -> str:
    return f"{median(took):.1f}/{quantiles(took, n=100, method='inclusive')[98]:.1f}"
