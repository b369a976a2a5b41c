"""reasoning-gym and Gymnasium, which have an environment of their own: our scores and rewards are the packages' own."""

import json
import os
import sys
from pathlib import Path

import pytest

from ...boxes import require_kind
from ...documents import blocks
from ...waiting import run

ROOT, HERE = Path(__file__).parents[3], Path(__file__).parent
PYTHON = Path(os.environ.get("LIGHT_PYTHON", Path(sys.prefix, "adapters", "light", "bin", "python")))
WITHOUT_OWN_ANSWER = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
"""Sets whose own answer their own scorer refuses."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        not PYTHON.exists(), reason="no packages in .venv/adapters/light: 'make test-all' installs them"
    ),
]


@pytest.fixture
def call(tmp_path):
    """``call(word, …)`` runs the environment's Python, in a new directory, and returns what it has printed."""
    variables = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}",
        "PYTHONHASHSEED": "0",
        "PYTHONWARNINGS": "ignore",
    }

    def call(*words, status=0):
        done = run([PYTHON, *words], 1500, env=variables, cwd=tmp_path)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr if status else done.stdout

    return call


@pytest.fixture
def compare(call, tmp_path):
    """``compare(part, again, …)``: what our adapters made, and what the packages alone make of it."""

    def compare(part, again, *words):
        ours = call(HERE / "play_light.py", part, *words)
        (tmp_path / "ours.json").write_text(ours)
        return json.loads(ours), json.loads(call(HERE / "play_light.py", again, tmp_path / "ours.json"))

    return compare


def test_the_programs_of_the_document_run(call):
    programs = [text for page, text in blocks("python") if page == "docs/how-to/adapters.md"]

    assert programs
    call("-c", "\n".join(programs))


def test_an_answer_scores_what_the_package_gives_it_above_the_floor(call, compare):
    listed = "from reasoning_gym.factory import DATASETS; print(*sorted(DATASETS))"
    names = [name for name in call("-c", listed).split() if name != "composite"]  # which has no tasks of its own

    answers, scores = compare("answers", "scores", *names)

    assert len(names) == 105
    assert len(answers) >= 50
    for answer, theirs in zip(answers, scores, strict=True):
        floor = answer["floor"]
        assert answer["ours"] == pytest.approx(max(0.0, (theirs - floor) / (1 - floor))), answer
    own = {
        one["dataset"]: one["ours"] for one in reversed(answers) if one["text"] == f"<answer>{one['answer']}</answer>"
    }
    assert {name for name, score in own.items() if score < 1} == WITHOUT_OWN_ANSWER


def test_an_episode_earns_what_the_package_gives_it(compare):
    episodes, alone = compare("episodes", "rewards")

    assert len(episodes) >= 50
    for episode, theirs in zip(episodes, alone, strict=True):
        assert {"rewards": episode["rewards"], "state": episode["state"]} == theirs, episode["name"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Pendulum-v1", "discrete or text actions"),
        ("Lake-v1", "cannot be made"),
        ("FrozenLake-v1?depth=3", "cannot be made"),
        ("text_world:Camera-v0", "(8, 8, 3)"),
    ],
)
def test_an_environment_that_has_no_text_is_refused_by_name(call, name, why):
    find = "import sys; from envs.registry import find_object; find_object(sys.argv[1], 'agent')"

    printed = call("-c", find, f"gymnasium:{name}", status=1)

    assert f"BadInputError: environment gymnasium:{name}" in printed
    assert why in printed


@pytest.mark.parametrize(
    ("name", "finding"),
    [
        ("chain_sum?max_terms=3", None),
        ("countdown", None),
        ("word_ladder", None),
        ("graph_color", "reference"),
        ("complex_arithmetic", "cheats"),
        ("game_of_life_halting", "cheats"),
        ("puzzle24", "mutants"),
    ],
)
def test_the_gate_refuses_what_its_own_scorer_misjudges(call, tmp_path, name, finding):
    require_kind("namespace", "session")

    printed = call(
        *("-m", "agent_layer.cli", "--dir", tmp_path, "tasksets", "check", f"reasoning-gym:{name}"),
        status=0 if finding is None else 1,
    )

    assert finding is None or finding in printed.partition("failed ")[2], printed


def test_a_set_or_option_that_is_not_there_is_named(call):
    for name in ("chain_sums", "chain_sum?terms=3", "chain_sum?seed=1"):
        printed = call("-m", "agent_layer.cli", "tasksets", "write", f"reasoning-gym:{name}", "tasks.jsonl", status=2)
        assert f"reasoning-gym:{name.partition('?')[0]}" in printed
        assert "Traceback" not in printed
