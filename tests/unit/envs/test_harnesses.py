"""Declarations of harnesses: locks that pin what they name, attempts that are filled, names that are found."""

import asyncio
import re
import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from agent_layer.cli.main import main
from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.schema import Limits, Task, TaskView
from agent_layer.schema.sandbox import SandboxSpec
from agent_layer.settings import Settings
from envs.commands import CommandOptions, CommandPlace
from envs.harnesses import Harness, Installation, fill_tool, find_harness, make_harness_target
from envs.harnesses.catalogue import HARNESSES
from envs.harnesses.registry import list_harness_names
from tracer.core import Rollout

LOCKER = Path(__file__).parents[3] / ".ci" / "lock_harness.py"
PROMPT = 'say "$HOME" & {braces}\nplease'
PLACE = CommandPlace(
    task=TaskView(id="t", task_type="default", input={"prompt": PROMPT}),
    base_url="http://127.0.0.1:1/r/t-0/v1",
    api_key="alrk_1",
    model="policy",
    home="/h",
    workdir="/w",
    is_boxed=False,
)
OUTSIDE = CommandOptions(is_unboxed=True)
PLAIN = Harness(
    name="plain", package="p", version="1", installer="pypi", program="p", dialect="chat", arguments=["$prompt"]
)


@pytest.mark.parametrize("harness", HARNESSES.values(), ids=HARNESSES)
def test_a_lock_pins_the_declared_version_and_has_a_hash_for_everything(harness):
    if harness.installer == "npm":
        lock = msgspec.json.decode((harness.lock_folder / "package-lock.json").read_bytes())
        packages = {path: one for path, one in lock["packages"].items() if path}
        assert packages[f"node_modules/{harness.package}"]["version"] == harness.version
        assert all(one["integrity"].startswith("sha512-") for one in packages.values() if not one.get("inBundle"))
        assert not any("resolved" in one for one in packages.values())
    else:
        lines = (harness.lock_folder / "requirements.txt").read_text().splitlines()[1:]
        assert any(line.startswith(f"{harness.package}=={harness.version} ") for line in lines)
        assert all(re.fullmatch(r"[\w.-]+==\S+( --hash=sha256:[0-9a-f]{64})+", line) for line in lines)


@pytest.mark.parametrize("harness", HARNESSES.values(), ids=HARNESSES)
def test_an_attempt_is_filled_with_address_key_and_prompt(harness):
    program = Path("/dir/harnesses") / harness.name / "node_modules/.bin" / harness.program
    plans = [harness.make_plan(program, PLACE)]
    if harness.resume_arguments is not None:
        plans.append(harness.make_plan(program, PLACE, resumes=True))

    for plan in plans:
        texts = [*plan.argv, *filter(None, plan.env.values()), *plan.home_files.values()]
        assert PROMPT in plan.argv
        assert any("http://127.0.0.1:1/r/t-0" in text for text in texts)
        assert any("alrk_1" in text for text in texts)
        for path, text in plan.home_files.items():
            assert not Path(path).is_absolute()
            match Path(path).suffix:
                case ".json":
                    msgspec.json.decode(text)
                case ".toml":
                    tomllib.loads(text)
                case _:
                    assert "$" not in text


def test_numbers_stay_numbers_and_other_texts_texts():
    files = {"$model.json": {"a": "$context_tokens", "b": "$model $output_tokens", "$model": [1, None, "$$"]}}
    harness = msgspec.structs.replace(PLAIN, files=files, context_tokens=7, output_tokens=3)

    plan = harness.make_plan(Path("/d/h/bin/p"), PLACE)

    assert msgspec.json.decode(plan.home_files["policy.json"]) == {"a": 7, "b": "policy 3", "policy": [1, None, "$"]}


@pytest.mark.parametrize("text", ["$nothing", "costs 5 $", "${home"])
def test_a_placeholder_that_does_not_exist_is_named(text):
    harness = msgspec.structs.replace(PLAIN, environment={"A": text})

    with pytest.raises(BadInputError, match=r"expected placeholders among api_key, .*correct its decl"):
        harness.make_plan(Path("/d/h/bin/p"), PLACE)


def test_an_agent_that_cannot_resume_says_so():
    with pytest.raises(BadInputError, match="cannot continue a conversation"):
        PLAIN.make_plan(Path("/d/h/bin/p"), PLACE, resumes=True)


def test_a_command_that_prints_the_answer_runs_behind_the_program():
    harness = msgspec.structs.replace(PLAIN, answer_command="cat $home/answer $folder/x")

    plan = harness.make_plan(Path("/d/h/bin/p"), PLACE)

    assert plan.argv == ["/bin/sh", "-c", '"$0" "$@" >&2 && cat /h/answer /d/h/x', "/d/h/bin/p", PROMPT]


def test_the_scripted_model_calls_a_tool_by_its_shape():
    shape = HARNESSES["qwen-code"].shell

    assert fill_tool(shape, command="echo $x") == (
        "run_shell_command",
        {"command": "echo $x", "is_background": False},
    )


@pytest.fixture
def plug_in(monkeypatch):
    """``plug_in(name="module:attribute")``: what an installed package registers."""

    def register(**points):
        found = EntryPoints(EntryPoint(name, value, "agent_layer.harnesses") for name, value in points.items())
        monkeypatch.setattr("envs.plug_ins.entry_points", lambda **_: found)

    return register


def test_harnesses_of_other_packages_stand_behind_ours(plug_in, monkeypatch):
    module = ModuleType("some_plug_in")
    module.PLAIN = PLAIN
    monkeypatch.setitem(sys.modules, "some_plug_in", module)
    plug_in(plain="some_plug_in:PLAIN", codex="elsewhere:ignored")

    assert list_harness_names() == [*HARNESSES, "plain"]
    assert find_harness("plain") is PLAIN
    assert find_harness("codex") is HARNESSES["codex"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "cannot be imported"),
        ("other", "expected an envs.harnesses.Harness, found a"),
        ("clod", "expected one of claude-code, "),
    ],
)
def test_what_is_no_harness_is_refused_by_name(plug_in, name, message):
    plug_in(missing="nowhere:thing", other="envs.harnesses.catalogue:HARNESSES")

    with pytest.raises(BadInputError, match=f"harness '{name}': {message}"):
        find_harness(name)


def test_what_is_not_installed_says_how_to_install_it(tmp_path):
    installation = Installation(Settings(dir=tmp_path), HARNESSES["aider"])

    with pytest.raises(BadInputError, match="is not installed; run 'agent-layer harnesses install aider'"):
        installation.require_program()


@pytest.mark.parametrize("name", ["codex", "aider"])
def test_an_installation_without_its_interpreter_says_which(tmp_path, monkeypatch, name):
    monkeypatch.setenv("PATH", str(tmp_path))
    harness = msgspec.structs.replace(HARNESSES[name], python="3.99")

    with pytest.raises(BadInputError, match=rf"harness '{name}': needs (node and npm|Python 3.99)"):
        Installation(Settings(dir=tmp_path), harness).install(lambda _: None)


def write_program(path, script):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)


def test_an_interpreter_that_does_not_start_is_named_or_passed_over_for_the_next(tmp_path, monkeypatch):
    first, second = tmp_path / "shims/python3.99", tmp_path / "bin/python3.99"
    write_program(first, "echo set a version first >&2; exit 127")
    monkeypatch.setenv("PATH", f"{first.parent}:{second.parent}:/usr/bin:/bin")
    installation = Installation(Settings(dir=tmp_path / "dir"), msgspec.structs.replace(PLAIN, python="3.99"))

    assert installation.find_missing() == f"Python 3.99; {first} does not start: set a version first"
    write_program(second, "exit 0")
    assert installation.find_missing() is None


@pytest.mark.parametrize("lacks", [[], ["p-other-cpu"]])
def test_what_does_not_start_once_it_is_installed_is_not_installed(tmp_path, monkeypatch, lacks):
    lock = tmp_path / "lock"
    lock.mkdir()
    (lock / "package.json").write_bytes(msgspec.json.encode({"lacks": lacks}))
    (lock / "package-lock.json").write_text("{}")
    write_program(tmp_path / "bin/node", "echo v20.1.0")
    made = "mkdir -p node_modules/.bin; printf '#!/bin/sh\\ntest -z \"$(ls -A $HOME)\" && exit 3' > node_modules/.bin/p"
    write_program(tmp_path / "bin/npm", f"{made}; chmod 700 node_modules/.bin/p")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    harness = msgspec.structs.replace(PLAIN, installer="npm", lock=lock)
    installation = Installation(Settings(dir=tmp_path / "dir"), harness)

    with pytest.raises(AgentFailedError, match="p ended with status 3") as raised:
        installation.install(lambda _: None)

    assert ("p-other-cpu" in str(raised.value)) == bool(lacks)
    assert "is not installed" in installation.find_fault()


def test_a_lock_keeps_builds_that_only_the_lock_before_has_and_names_the_others():
    complete_packages = runpy.run_path(str(LOCKER))["complete_packages"]
    wanted = {"b-linux": "1.0", "b-mac": "1.0", "b-win": "1.0", "b-old": "1.0"}
    packages = {
        "": {"dependencies": {"a": "1.0"}},
        "node_modules/a": {"version": "1.0", "optionalDependencies": wanted},
        "node_modules/b-linux": {"version": "1.0"},
    }
    mac = {"version": "1.0", "integrity": "sha512-x", "optional": True}
    before = {"node_modules/a/node_modules/b-mac": mac, "node_modules/b-old": {"version": "0.9"}}

    assert complete_packages(packages, before) == ["b-old", "b-win"]
    assert packages["node_modules/a"]["optionalDependencies"] == {"b-linux": "1.0", "b-mac": "1.0"}
    assert packages["node_modules/a/node_modules/b-mac"] == mac
    assert "node_modules/b-old" not in packages


def test_an_old_node_is_named_before_anything_is_installed(tmp_path, monkeypatch):
    for name in ("node", "npm"):
        (tmp_path / name).write_text("#!/bin/sh\necho v18.19.1\n")
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    with pytest.raises(BadInputError, match=r"harness 'codex': needs node and npm .*20 or later.* found v18.19.1"):
        Installation(Settings(dir=tmp_path / "dir"), HARNESSES["codex"]).install(lambda _: None)


def test_an_answer_is_found_in_a_home_whose_name_has_spaces(tmp_path):
    home = tmp_path / "it's a home"
    home.mkdir()
    (home / "answer").write_text("done")
    harness = msgspec.structs.replace(PLAIN, answer_command="cat $home/answer", arguments=[])

    plan = harness.make_plan(Path("/usr/bin/true"), msgspec.structs.replace(PLACE, home=str(home)))

    assert subprocess.run(plan.argv, capture_output=True, text=True, check=True).stdout == "done"


@pytest.mark.parametrize("name", ["codex", "aider"])
def test_what_is_installed_stays_when_its_interpreter_or_lock_is_missing(tmp_path, monkeypatch, name):
    monkeypatch.setenv("PATH", str(tmp_path))
    harness = msgspec.structs.replace(HARNESSES[name], python="3.99")
    for changed in (harness, msgspec.structs.replace(harness, lock=tmp_path / "none")):
        installation = Installation(Settings(dir=tmp_path), changed)
        installation.folder.mkdir(parents=True, exist_ok=True)
        (installation.folder / "kept").write_text("")

        with pytest.raises(BadInputError, match=rf"harness '{name}': (needs|its lock .* is no folder)"):
            installation.install(lambda _: None)
        assert (installation.folder / "kept").exists()


def test_an_installation_of_another_lock_counts_as_none(tmp_path):
    harness = HARNESSES["codex"]
    installation = Installation(Settings(dir=tmp_path), harness)
    installation.folder.mkdir(parents=True)
    (installation.folder / "installed.json").write_text('{"version": "0.1", "lock_hash": "x", "interpreter": "node 1"}')

    assert "is installed at version 0.1 of another lock, expected" in installation.find_fault()


@pytest.fixture
def echoing(tmp_path):
    """``echoing(script)``: settings and declaration of an installed agent that is a shell script."""

    def install(script, options=OUTSIDE, **changes):
        harness = msgspec.structs.replace(PLAIN, lock=tmp_path / "lock", **changes)
        harness.lock_folder.mkdir()
        installation = Installation(Settings(dir=tmp_path / "dir"), harness)
        installation.program.parent.mkdir(parents=True)
        installation.program.write_text(f"#!/bin/sh\n{script}\n")
        installation.program.chmod(0o700)
        marker = {"version": "1", "lock_hash": installation._hash_lock(), "interpreter": "sh"}
        (installation.folder / "installed.json").write_bytes(msgspec.json.encode(marker))
        return make_harness_target(Settings(dir=tmp_path / "dir"), harness, options)

    return install


def run_attempt(target, name):
    rollout = Rollout(
        trajectory_id=name, rollout_id="r", attempt=0, run="run", sink=None,
        base_url="http://127.0.0.1:9/v1", api_key="alrk_1", model="policy",
    )  # fmt: skip
    return target(Task(id="t", run="run", input={"instruction": "do it"}), rollout)


async def test_attempts_at_once_share_no_file_and_leave_message_and_changes(echoing):
    target = echoing(
        'cat "$HOME/conf.json"; echo "$1" > made; ls; echo; echo "$ASKED $OPENAI_MODEL"',
        files={"conf.json": {"url": "$base_url"}},
        environment={"ASKED": "$model"},
    )

    results = await asyncio.gather(*(run_attempt(target, f"r{number}-0") for number in range(4)))

    assert results == ['{\n  "url": "http://127.0.0.1:9/v1"\n}\nmade\n\npolicy'] * 4
    for number in range(4):
        left = await target.collect(f"r{number}-0", [], 1 << 20)
        assert "changes.patch" in repr(left)
    await target.close()


def test_an_installation_whose_interpreter_was_removed_says_so(echoing, tmp_path):
    echoing("true")
    installation = Installation(Settings(dir=tmp_path / "dir"), msgspec.structs.replace(PLAIN, lock=tmp_path / "lock"))
    (installation.folder / "bin/python").symlink_to("/gone/python")

    assert "lacks its interpreter, sh, which was removed" in installation.find_fault()


def test_an_agent_is_never_run_with_the_users_own_configuration(echoing):
    with pytest.raises(BadInputError, match="harness 'plain': expected no --share-workdir"):
        echoing("true", CommandOptions(is_shared=True))


def test_directories_of_a_box_cannot_be_kept(echoing):
    with pytest.raises(BadInputError, match="harness 'plain': expected no --keep-workdir beside a sandbox"):
        echoing("true", CommandOptions(keep="kept"))


def test_an_installation_that_a_box_cannot_show_is_refused_at_the_start(echoing, monkeypatch):
    monkeypatch.setattr("envs.harnesses.install.Installation.list_mounts", lambda _: ["/tmp/dir/harnesses/plain"])
    box = SandboxSpec(kind="session", workdir="/attempt")

    with pytest.raises(BadInputError, match=r"harness 'plain': no sandbox can show .*/tmp/dir.*set AGENT_LAYER_DIR"):
        echoing("true", CommandOptions(box=box))


async def test_a_task_for_training_is_sampled_as_training_needs_and_every_task_has_limits(echoing):
    target = echoing("true", sampling={"temperature": 1.0, "top_k": -1}, limits=Limits(turns=9, wall_seconds=60.0))
    own = Task(id="t", run="r", input="x", sampling={"temperature": 0.7}, limits=Limits(turns=2, tokens=5))

    plain, completed = (target.complete_task(task) for task in (Task(id="t", run="r", input="x"), own))
    held_out = target.complete_task(msgspec.structs.replace(own, split="eval", sampling={}))

    assert (plain.sampling, plain.limits) == ({"temperature": 1.0, "top_k": -1}, Limits(turns=9, wall_seconds=60.0))
    assert completed.sampling == {"temperature": 0.7, "top_k": -1}
    assert completed.limits == held_out.limits == Limits(turns=2, tokens=5, wall_seconds=60.0)
    assert held_out.sampling == {}
    await target.close()


@pytest.mark.parametrize("harness", HARNESSES.values(), ids=HARNESSES)
def test_every_harness_declares_what_training_needs(harness):
    assert harness.sampling["temperature"] == 1.0
    assert None not in (harness.limits.turns, harness.limits.wall_seconds)


@pytest.mark.parametrize("place", ["/usr/bin/node", "/usr/local/bin/node", "/opt/node-22/bin/node"])
def test_a_box_gets_the_interpreter_unless_it_has_it_anyway(echoing, tmp_path, monkeypatch, place):
    echoing("true", installer="npm")
    harness = msgspec.structs.replace(PLAIN, installer="npm", lock=tmp_path / "lock")
    monkeypatch.setattr("shutil.which", lambda *_, **__: place)
    (tmp_path / "link").symlink_to(tmp_path / "dir")

    mounts = Installation(Settings(dir=tmp_path / "link"), harness).list_mounts()

    shown = {"/opt/node-22/bin/node": ["/opt/node-22"]}.get(place, [])
    assert mounts == [str(tmp_path.resolve() / "dir/harnesses/plain"), *shown]


def test_a_box_is_never_shown_a_home_because_the_interpreter_lies_there(echoing, tmp_path, monkeypatch):
    echoing("true", installer="npm")
    harness = msgspec.structs.replace(PLAIN, installer="npm", lock=tmp_path / "lock")
    monkeypatch.setattr("shutil.which", lambda *_, **__: "/srv/person/bin/node")
    monkeypatch.setattr(Path, "home", lambda: Path("/srv/person"))

    with pytest.raises(BadInputError, match="needs all of /srv/person for its interpreter, and HOME lies there"):
        Installation(Settings(dir=tmp_path / "dir"), harness).list_mounts()


@pytest.mark.parametrize("empty", [None, "", {}, []])
def test_a_task_without_a_question_is_refused(empty):
    place = msgspec.structs.replace(PLACE, task=TaskView(id="t", task_type="default", input=empty))

    with pytest.raises(BadInputError, match="task 't': expected a question as its input"):
        PLAIN.make_plan(Path("/d/h/bin/p"), place)


async def test_an_agent_that_fails_says_what_it_wrote_last(echoing):
    target = echoing("echo no network >&2; exit 3")

    with pytest.raises(AgentFailedError, match="ended with status 3: no network"):
        await run_attempt(target, "r-0")
    await target.close()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["work", "a:b", "--harness", "pi"], "needs either TARGET or --harness, not both"),
        (["work", "--harness", "pi", "--", "sh"], "needs either TARGET, --harness or '-- COMMAND'"),
        (["work", "--harness", "pi"], "harness 'pi': is not installed; run 'agent-layer harnesses install pi'"),
        (["work", "harness:clod"], "harness 'clod': expected one of claude-code"),
        (["eval", "a:b", "tasks.jsonl", "--harness", "pi"], "expected tasks alone beside --harness"),
        (["eval", "tasks.jsonl", "--harness", "pi", "--model=m"], "harness 'pi': is not installed"),
        (["eval", "tasks.jsonl", "--harness", "clod", "--model=m"], "harness 'clod': expected one of claude-code"),
        (["eval", "tasks.jsonl", "--harness", "pi", "--", "sh"], "expected --harness or '-- COMMAND', found both"),
        (["train", "run.yaml", "--workdir=x"], "train: --workdir=x is for --harness, found none"),
        (["train", "run.yaml", "--slots=16"], "train: --slots=16 is for --harness, found none"),
        (["work", "--harness", "pi", "--keep-workdir", "x"], "expected --keep-workdir without a sandbox"),
        (["harnesses", "install"], "expected names or --all"),
        (["harnesses", "install", "clod"], "harness 'clod': expected one of claude-code"),
        (["harnesses", "check", "pi"], "harness 'pi': is not installed"),
    ],
)
def test_a_command_line_that_names_no_one_agent_is_refused(command, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AGENT_LAYER_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["agent-layer", *command])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_list_says_what_is_installed_and_when_it_was_qualified(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AGENT_LAYER_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["agent-layer", "harnesses"])

    with pytest.raises(SystemExit):
        main()

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["name", *HARNESSES]
    assert all(" no " in line for line in lines[1:])
