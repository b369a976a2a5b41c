"""Pictures of the views that a finished run fills, at 1280 and 390 pixels, for the documents: ``make screenshots``.

It opens a page that is served at the address given, picks what the pictures show by asking its API, and packs each
picture to a palette, so that all of them stay small. A finished run has no fleet, and none beside it: those pictures
are of a made-up store (``tests/fleet.py``), which it serves meanwhile.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, urlencode
from urllib.request import urlopen

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from agent_layer.infra.processes.addresses import free_port

FOLDER = Path(__file__).parents[2] / "docs" / "images" / "view"
SIZES = {"": (1280, 860), "-390": (390, 844)}
_NUM_COLOURS = 256
_FLEET_VIEWS = {
    "fleet": "#/fleet",
    "failures": "#/failures?run=training",
    "overlay": "#/learning/training?with=larger-groups",
}
"""Of the made-up fleet."""


def take_screenshots(address: str, folder: Path = FOLDER) -> list[Path]:
    """Write a picture of each view at each size; return the files."""
    program = os.environ.get("AGENT_LAYER_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play, _serve_fleet() as fleet:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        places = {name: address + path for name, path in _views(address).items()}
        places |= {name: fleet + path for name, path in _FLEET_VIEWS.items()}
        taken = [
            _take(browser, place, folder / f"{name}{suffix}.png", size)
            for suffix, size in SIZES.items()
            for name, place in places.items()
        ]
        browser.close()
    return taken


@contextmanager
def _serve_fleet() -> Iterator[str]:
    """Serve the made-up fleet during the block; yields the address."""
    program = Path(__file__).parents[1] / "show_fault.py"
    with TemporaryDirectory(prefix="al-fleet-") as name:
        command = [sys.executable, str(program), "fleet", name, "--port", str(free_port())]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield process.stdout.readline().partition("#")[0]
        finally:
            process.terminate()
            process.communicate()


def _views(address: str) -> dict[str, str]:
    """Return the address of each view, with what tells the most: the run with most updates, its longest attempts."""

    def ask(path: str, **query: object) -> dict:
        with urlopen(f"{address}api/v1/{path}?{urlencode(query)}") as answer:
            return json.load(answer)

    run = max(ask("runs")["items"], key=lambda one: one["num_updates"])["run"]
    updates = ask(f"runs/{quote(run)}/updates")["items"]
    step = updates[len(updates) // 2]["step"]
    groups = ask(f"runs/{quote(run)}/updates/{step}")["groups"]
    group = min(groups, key=lambda one: one["is_zero_std"])["group_id"]
    members = ask(f"groups/{quote(group)}")["members"]
    members.sort(key=lambda one: (one["reward"] or 0, one["row"]["num_steps"]))
    worst, best = (members[at]["row"]["trajectory_id"] for at in (0, -1))
    return {
        "runs": "#/runs",
        "run": f"#/run/{quote(run)}",
        "learning": f"#/learning/{quote(run)}",
        "update": f"#/update/{quote(run)}/{step}",
        "trajectories": f"#/trajectories?run={quote(run)}",
        "trajectory": f"#/trajectory/{quote(worst)}",
        "tokens": f"#/trajectory/{quote(worst)}?tab=tokens",
        "forks": f"#/trajectory/{quote(worst)}?tab=forks",
        "group": f"#/group/{quote(group)}",
        "diff": f"#/diff/{quote(worst)}/{quote(best)}",
        "review": f"#/review?run={quote(run)}",
    }


def _take(browser: Browser, address: str, path: Path, size: tuple[int, int]) -> Path:
    page = browser.new_page(
        viewport={"width": size[0], "height": size[1]}, color_scheme="light", reduced_motion="reduce"
    )
    page.goto(address)
    page.wait_for_selector("h1")
    page.wait_for_selector(".loading", state="detached")
    page.evaluate("document.fonts.ready.then(() => new Promise(requestAnimationFrame))")
    shot = Image.open(BytesIO(page.screenshot())).convert("RGB")
    shot.quantize(_NUM_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    page.close()
    return path


if __name__ == "__main__":
    for one in take_screenshots(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else FOLDER):
        sys.stdout.write(f"{one.stat().st_size:>8}  {one}\n")
