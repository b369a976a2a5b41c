"""Harbor directories run to the end: the reference scores 1, nothing scores 0, and what a policy does is its own."""

import asyncio
import shutil
import tarfile
from pathlib import Path

import msgspec
import pytest

from agent_layer.dispatcher import parse_tasks
from agent_layer.schema import Task
from agent_layer.settings import load_settings
from envs.evaluation import TaskSource, load_tasks
from envs.sandbox import PoolOptions, open_pool
from envs.script import Script
from envs.tasksets import HarborTasks, read_lines
from envs.tasksets.gate.script_judge import ScriptJudge
from envs.tasksets.gate.trainable import check_trainable, save_report
from envs.tasksets.harbor.images import ImageStore

from ...boxes import require_kind
from ...examining import examine
from ..sandbox.root_directory import make_root_directory
from .harbor_forms import BASE, FORMS, form, write_directory, write_layout

FAST = ("run", "separate")
"""Forms that each run plays; ``make test-all`` plays all."""


@pytest.fixture(autouse=True)
def _boxes():
    require_kind("session", "oci")


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """Images by name, as ``--image-map`` takes them."""
    root = make_root_directory(tmp_path_factory.mktemp("root"))
    return {BASE: root}


@pytest.fixture(scope="session")
def all_images(images, tmp_path_factory):
    root = images[BASE]
    layout = write_layout(tmp_path_factory.mktemp("layout"), root, is_saved=False)
    saved = tmp_path_factory.mktemp("saved") / "saved.tar"
    with tarfile.open(saved, "w") as archive:
        archive.add(write_layout(tmp_path_factory.mktemp("save"), root, is_saved=True), ".")
    return images | {"layout:*": layout, "saved:1": saved}


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A data directory, whose images all tests share."""
    return tmp_path_factory.mktemp("data")


def open_tasks(folder, data, images, **options):
    image_map = ",".join(f"{name}={local}" for name, local in images.items())
    return HarborTasks(folder, load_settings().model_copy(update={"dir": data, "image_map": image_map, **options}))


def judge_all(cases):
    """Return what the scorers make of pairs of a task and a script."""

    async def run():
        async with open_pool(PoolOptions(ready_per_spec=0, max_starts=2)) as pool:
            judge, gate = ScriptJudge(pool), asyncio.Semaphore(4)

            async def judge_one(task, script):
                async with gate:
                    return await judge.judge(task, script)

            return await asyncio.gather(*(judge_one(*case) for case in cases))

    return asyncio.run(run())


def check_forms(names, folder, data, images):
    for name in names:
        write_directory(folder / name, FORMS[name])
    taskset = open_tasks(folder, data, images)
    tasks = list(taskset.tasks(split="train"))

    assert [str(one) for one in taskset.refused] == []
    assert [task.id for task in tasks] == sorted(names)
    empty = Script(name="nothing")
    verdicts = judge_all([(task, script) for task in tasks for script in (taskset.solve(task), empty)])
    found = {task.id: verdicts[2 * number : 2 * number + 2] for number, task in enumerate(tasks)}
    assert {name: [one.reward for one in pair] for name, pair in found.items()} == {
        name: [1.0, 0.0] for name in names
    }, [one for pair in found.values() for one in pair if one.reward not in (0.0, 1.0)]


def test_the_reference_scores_1_and_nothing_scores_0(tmp_path, data, images):
    check_forms(FAST, tmp_path, data, images)


@pytest.mark.long
def test_the_reference_scores_1_and_nothing_scores_0_in_every_form(tmp_path, data, all_images):
    assert len(FORMS) >= 30
    check_forms(FORMS, tmp_path, data, all_images)


def make_task(folder, data, images, files):
    taskset = open_tasks(write_directory(folder / "it", files).parent, data, images)
    return taskset, next(taskset.tasks(split="train"))


@pytest.mark.long
@pytest.mark.parametrize("name", ["empty-file", "separate"])
def test_no_common_cheat_pays(tmp_path, data, images, name):
    taskset, task = make_task(tmp_path, data, images, FORMS[name])

    verdicts = judge_all([(task, cheat) for cheat in taskset.cheats(task)])

    assert [one.reward for one in verdicts] == [0.0] * len(verdicts)


SPOILED = (
    "rm /usr/bin/sh",
    "rm -d /tmp/x 2>/dev/null; printf 'exit 1' > /usr/bin/cat",
    "mkdir -p /tests/test.sh",
    "mkdir -p /logs/verifier/reward.txt",
    "printf '#!/bin/sh\\nsleep 600\\n' > /usr/bin/cat; chmod 755 /usr/bin/cat",
)


@pytest.mark.long
def test_a_policy_that_spoils_the_tests_scores_0_and_tests_that_fail_alone_score_null(tmp_path, data, images):
    _, task = make_task(tmp_path / "a", data, images, form("[verifier]\ntimeout_sec = 3\n"))
    _, broken = make_task(tmp_path / "b", data, images, form(test="#!/bin/sh\nexit 1\n"))

    spoiled = judge_all([(task, Script(name=one, commands=[["/bin/sh", "-c", one]])) for one in SPOILED])
    (null,) = judge_all([(broken, Script(name="nothing"))])

    assert [(one.reward, one.status) for one in spoiled] == [(0.0, "ok")] * len(SPOILED)
    assert (null.reward, null.status) == (None, "verifier_error")


@pytest.mark.long
def test_a_link_in_place_of_an_artifact_brings_no_file_of_the_tests(tmp_path, data, images):
    files = FORMS["separate"] | {"tests/expected": "ok\n"}
    _, task = make_task(tmp_path, data, images, files)
    scripts = [
        Script(name=one, commands=[["/bin/sh", "-c", one]])
        for one in ("ln -s /tests/expected out.txt", "rm -d /app; ln -s /tests /app")
    ]

    assert [one.reward for one in judge_all([(task, script) for script in scripts])] == [0.0, 0.0]


def test_a_build_that_fails_leaves_the_task_out_by_name(tmp_path, data, images):
    write_directory(tmp_path / "good", FORMS["empty-file"])
    write_directory(tmp_path / "bad", form(environment=f"FROM {BASE}\nRUN echo why; exit 7\n"))
    taskset = open_tasks(tmp_path, data, images)

    assert [task.id for task in taskset.read_tasks()] == ["good"]
    (refused,) = taskset.refused
    assert "bad needs build" in str(refused)
    assert "Dockerfile line 2: RUN ended with 7" in str(refused)
    assert "why" in str(refused)
    assert list((data / "images").glob("making-*")) == []


def test_a_directory_that_changed_since_its_import_is_not_graded(tmp_path, data, images):
    _, task = make_task(tmp_path, data, images, FORMS["empty-file"])
    (tmp_path / "it/tests/test.sh").write_text("#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n")

    (found,) = judge_all([(task, Script(name="nothing"))])

    assert (found.reward, found.status) == (None, "verifier_error")
    assert "was changed since its import" in found.evidence


def test_an_image_stays_as_it_was_and_is_built_once(tmp_path, data, images):
    before = sorted(path.relative_to(images[BASE]) for path in images[BASE].rglob("*"))
    _, task = make_task(tmp_path, data, images, FORMS["run"])
    again = open_tasks(tmp_path, data, images)

    assert next(again.tasks(split="train")) == task
    assert sorted(path.relative_to(images[BASE]) for path in images[BASE].rglob("*")) == before
    assert not (Path(task.sandbox.image) / "etc/group").exists()
    shutil.rmtree(tmp_path / "it")


def test_a_folder_becomes_lines_that_are_its_tasks(tmp_path, data, images):
    write_directory(tmp_path / "set/good", FORMS["empty-file"])
    write_directory(tmp_path / "set/other", form(environment="FROM nowhere:1\n"))
    settings = load_settings().model_copy(update={"dir": data, "image_map": f"{BASE}={images[BASE]}"})

    lines, left_out = read_lines(tmp_path / "set", settings)
    (task,) = parse_tasks(lines, subject="lines", run="r", split="eval")
    loaded = load_tasks(TaskSource(name=str(tmp_path / "set")), "r", settings)

    assert [text.partition(";")[0] for text in left_out] == ["left out: other needs image: nowhere:1"]
    assert (task.id, task.scorer, task.artifacts) == ("good", "envs.tasksets.harbor:SharedVerifier", ["/"])
    assert (task.labels["network"], task.labels["taskset"]) == ("agent none, tests none", "set")
    found, expected = (msgspec.structs.replace(one, labels={}, priority=0) for one in (task, loaded.tasks[0]))
    assert found == expected
    assert "tests" not in str(task.view())
    assert loaded.notes == left_out


def check_folder(folder, data, images, monkeypatch):
    """Check a folder as the command does; other processes find the images by their variables."""
    monkeypatch.setenv("AGENT_LAYER_DIR", str(data))
    monkeypatch.setenv("AGENT_LAYER_IMAGE_MAP", ",".join(f"{name}={local}" for name, local in images.items()))
    return examine(str(folder))


@pytest.mark.long
def test_a_folder_whose_references_pass_and_whose_cheats_fail_may_train(tmp_path, data, images, monkeypatch):
    for name in ("empty-file", "separate"):
        write_directory(tmp_path / "set" / name, FORMS[name] | {"instruction.md": f"Do what {name} says."})
    write_directory(tmp_path / "set/other", form(environment="FROM nowhere:1\n"))

    report = check_folder(tmp_path / "set", data, images, monkeypatch)
    save_report(tmp_path, report)
    check_trainable(tmp_path, [Task(id="a", run="r", labels={"taskset": "set", "taskset_version": report.version})])

    assert report.is_passed, report.failures
    assert [len(set(report.counts[name])) for name in ("reference", "empty", "cheats")] == [1, 1, 1]
    assert report.num_tasks == 2
    assert "rewrites" not in report.counts
    assert [note.split(":")[0] for note in report.notes] == ["not tried", "left out"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("files", "check"),
    [
        ({"solve": "true"}, "reference"),
        ({"check": "true"}, "empty"),
        ({"check": "[ -d /var/mine ] || [ -s out.txt ]"}, "cheats"),
    ],
)
def test_a_folder_whose_tests_are_wrong_fails_its_check(tmp_path, data, images, monkeypatch, files, check):
    write_directory(tmp_path / "set/good", FORMS["empty-file"])
    write_directory(tmp_path / "set/wrong", form(**files))

    report = check_folder(tmp_path / "set", data, images, monkeypatch)

    assert {task for failure in report.failures for task in failure.tasks} == {"wrong"}
    assert check in report.codes


@pytest.mark.long
def test_tasks_of_two_sets_with_one_name_have_their_own_references(tmp_path, data, images):
    texts = ("one", "two")
    forms = [form(files={"instruction.md": f"Do {text}."}) for text in texts]
    sets = [make_task(tmp_path / text, data, images, files) for text, files in zip(texts, forms, strict=True)]
    store = ImageStore(data / "images")

    found = [store.find_directory(task.view(), task.sandbox) for _, task in sets]

    assert [task.id for _, task in sets] == ["it", "it"]
    assert found == [tmp_path / "one/it", tmp_path / "two/it"]
    assert [taskset.solve(task).uploads["/solution"] for taskset, task in sets] == [f"{one}/solution" for one in found]


@pytest.mark.long
def test_what_a_killed_build_left_goes_with_the_next(tmp_path, data, images):
    files = form(environment=f"FROM {BASE}\nWORKDIR /app\nRUN echo {tmp_path.name} > mine\n")
    taskset, task = make_task(tmp_path, data, images, files)
    root = Path(task.sandbox.image)
    (root.parent / f"{root.name}.json").unlink()  # as a kill before the image was whole leaves it
    root.rename(root.parent / f"making-{root.name}")
    (root.parent / f"making-{root.name}/half").touch()

    assert next(taskset.tasks(split="train")) == task
    assert (root / "app/mine").exists()
    assert not (root / "half").exists()
    assert list(root.parent.glob("making-*")) == []
