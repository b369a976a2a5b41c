"""Harbor directories are read strictly: what is wrong is named by file and key, and what a task needs by its kind."""

import io
import math
import random
import tarfile

import pytest

from agent_layer.errors import BadInputError
from envs.tasksets import open_taskset
from envs.tasksets.harbor.directory import find_task_directories, pack_tree, read_task_directory
from envs.tasksets.harbor.dockerfile import (
    ImageConfig,
    Run,
    find_base,
    is_ignored,
    list_unfit,
    parse_dockerfile,
    plan_build,
)
from envs.tasksets.harbor.images import ImageStore
from envs.tasksets.harbor.needs import Allowed, list_needs, resolve_network
from envs.tasksets.harbor.root_directory import RootWriter
from envs.tasksets.harbor.task_file import list_artifacts, read_task_file
from envs.tasksets.harbor.verifier import read_reward_file

DIRECTORY = {
    "task.toml": "",
    "instruction.md": "Do it.",
    "environment/Dockerfile": "FROM base:1\n",
    "tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n",
}


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def read_toml(folder, text):
    return read_task_file(write(folder, {"task.toml": text}) / "task.toml")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a = ", "expected a file in TOML"),
        ("[environment]\nmemory_mb = 'much'", "environment.memory_mb"),
        ("[environment]\nmemory_mb = -1", "environment.memory_mb"),
        ("[environment]\ncpus = nan", "environment.cpus"),
        ("[environment]\nmemory = '2X'", "environment.memory"),
        ("[environment]\nmemory = '2G'\nmemory_mb = 1", "memory and memory_mb differ"),
        ("[environment]\nos = 'plan9'", "environment.os"),
        ("[environment]\nnetwork_mode = 'some'", "environment.network_mode"),
        ("[environment]\nallowed_hosts = ['a.org']", "environment.allowed_hosts"),
        ("[environment]\nenv = {A = 1}", "environment.env"),
        ("[environment.healthcheck]\nretries = 1", "environment.healthcheck"),
        ("[agent]\ntimeout_sec = 0", "agent.timeout_sec"),
        ("[verifier]\ntimeout_sec = inf", "verifier.timeout_sec"),
        ("[verifier]\nenvironment_mode = 'both'", "verifier.environment_mode"),
        ("[verifier]\nenvironment_mode = 'shared'\n[verifier.environment]\n", "verifier.environment_mode"),
        ("[[verifier.environment.mcp_servers]]\nurl = 'x'", "verifier.environment.mcp_servers"),
        ("artifacts = ['../up']", "artifacts"),
        ("artifacts = [1]", "artifacts"),
        ("schema_version = '1.5'", "schema_version"),
        ("schema_version = '2'", "schema_version"),
        ("schema_version = 'new'", "schema_version"),
        ("[task]\nname = 'alone'", "task.name"),
        ("metadata = 1", "metadata"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_key(tmp_path, text, key):
    with pytest.raises(BadInputError, match=r"task\.toml: ") as caught:
        read_toml(tmp_path, text)

    assert key in str(caught.value)


def test_every_version_of_the_schema_means_the_same(tmp_path):
    old, _ = read_toml(
        tmp_path, "version = '1.0'\n[environment]\nmemory = '2G'\nstorage = '512M'\nallow_internet = true\n"
    )
    new, _ = read_toml(
        tmp_path,
        "schema_version = '1.0'\n[environment]\nmemory_mb = 2048\nstorage_mb = 512\nnetwork_mode = 'public'\n"
        "os = 'LINUX'\n",
    )

    assert old == new


def test_unknown_keys_are_named_and_harm_nothing(tmp_path):
    file, unknown = read_toml(
        tmp_path,
        "colour = 1\n[environment]\nshape = 1\ncpus = 2\n[[environment.mcp_servers]]\nname = 'a'\nsize = 1\n"
        "[metadata]\na = 1\n",
    )

    assert unknown == ["colour", "environment.mcp_servers.size", "environment.shape"]
    assert file.environment.cpus == 2


def test_artifacts_have_the_published_folder_first(tmp_path):
    file, _ = read_toml(tmp_path, "artifacts = ['/app/a', {source = 'b', exclude = ['c']}]")
    own, _ = read_toml(tmp_path, "artifacts = [{source = '/logs/artifacts/', exclude = ['c']}]")

    assert [one.source for one in list_artifacts(file)] == ["/logs/artifacts", "/app/a", "b"]
    assert [(one.source, one.exclude) for one in list_artifacts(own)] == [("/logs/artifacts/", ["c"])]


def test_no_two_names_become_one_and_no_file_is_left_unnamed(tmp_path):
    names = [
        "задача",
        "задание",
        "a b",
        "a-b",
        "a/b",
        "a.b ",
        "é" * 90,
        "x" * 96,
        "x" * 200 + "2",
        "x" * 200 + "3",
    ]
    for name in names:
        write(tmp_path / name, DIRECTORY | {".harborignore": "a"})
    tasks = [read_task_directory(one, tmp_path) for one in find_task_directories(tmp_path)]

    assert len({one.name for one in tasks}) == len(names)
    assert all(one.name.isascii() and len(one.name) <= 96 for one in tasks)
    assert {"a-b", "a.b"} <= {one.name for one in tasks}
    assert all(one.unknown == [".harborignore"] for one in tasks)


@pytest.mark.parametrize(
    ("path", "patterns", "is_left_out"),
    [
        ("a.md", "*.md", True), ("deep/a.md", "*.md", False), ("deep/a.md", "**/*.md", True), ("a.md", "**/*.md", True),
        ("b/c/d", "b/", True), ("b/c/x", "/b/**/x", True), ("b/x", "b/**/x", True), ("b/cx", "b/**/x", False),
        ("a/b", "* !a/b", False), ("a/c", "* !a/b", True), ("n1", "n?", True), ("n/1", "n?1", False),
        ("q/m/x", "**/m", True),
        ("[x", "[x", True), ("b", "[^a]", True), ("é", "?", True), ("x", "./x", True),
    ],
)  # fmt: skip
def test_patterns_leave_out_what_docker_leaves_out(path, patterns, is_left_out):
    assert is_ignored(path, patterns.split()) == is_left_out


@pytest.mark.parametrize("text", ["cat <<<word", "echo $((1<<n))", "a<<b"])
def test_what_is_no_heredoc_takes_no_line(tmp_path, text):
    write(tmp_path, {"Dockerfile": f"from\tbase:1\nRUN {text}\nRUN true\n"})

    assert [one.word for one in parse_dockerfile(tmp_path / "Dockerfile")] == ["FROM", "RUN", "RUN"]


def list_directory_needs(folder, toml="", files=None, allowed=None, images=("base:1",)):
    directory = write(folder, DIRECTORY | {"task.toml": toml} | (files or {}))
    task = read_task_directory(directory, directory)
    return [f"{need.kind}: {need.what}" for need in list_needs(task, lambda name: name in images, allowed or Allowed())]


def test_a_task_that_needs_nothing_is_refused_nothing(tmp_path):
    assert list_directory_needs(tmp_path) == []


@pytest.mark.parametrize(
    ("toml", "files", "need"),
    [
        ("", {"environment/Dockerfile": "FROM other:1\n"}, "image: other:1"),
        ("[environment]\ndocker_image = 'x'", {}, "image: x"),
        (
            "",
            {"environment/Dockerfile": "FROM base:1\nRUN apt-get -y install git\n"},
            "network: environment/Dockerfile",
        ),
        ("", {"environment/Dockerfile": "FROM base:1 AS a\nFROM base:1\n"}, "build: environment/Dockerfile several"),
        ("", {"environment/Dockerfile": "FROM base:1\nCOPY --from=x /a /b\n"}, "line 2: COPY --from"),
        ("", {"environment/Dockerfile": "FROM base:1\nADD https://a.org/x /x\n"}, "line 2: ADD of an address"),
        ("", {"environment/Dockerfile": "FROM base:1\nONBUILD RUN x\n"}, "line 2: ONBUILD"),
        *(
            ("", {"environment/Dockerfile": f"FROM base:1\n{line}\n"}, "line 2")
            for line in (
                "COPY x",
                "COPY --chmod=999 a b",
                "COPY --chmod=u+x a b",
                'ENV A="',
                "WORKDIR",
                "RUN",
            )
        ),
        ("", {"tests/test.sh": "#!/bin/sh\r\ntrue\r\n"}, "other: tests/test.sh ends its lines with CR LF"),
        ("", {"environment/Dockerfile": "FROM base:1\nENTRYPOINT server\n"}, "live process: environment/Dockerfile"),
        ("", {"environment/docker-compose.yaml": "services: {}\n"}, "service: environment/docker-compose.yaml"),
        ("[environment]\ngpus = 1", {}, "device: environment: a GPU"),
        ("[environment]\nos = 'windows'", {}, "device: environment.os"),
        ("[[environment.mcp_servers]]\nname = 'a'\nurl = 'b'", {}, "service: environment.mcp_servers: 'a'"),
        ("[environment.env]\nA = '${SECRET}'", {}, "other: environment.env: ${SECRET}"),
        ("[environment]\nnetwork_mode = 'public'", {}, "network: agent: network_mode = 'public'"),
        ("[verifier]\nnetwork_mode = 'public'", {}, "network: verifier: network_mode = 'public'"),
        ("[agent]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['a.org']", {}, "network: agent"),
        ("[[steps]]\nname = 'a'", {}, "steps: 1 steps"),
        ("[[verifier.collect]]\ncommand = 'dump'", {}, "live process: [[verifier.collect]]"),
        ("artifacts = [{source = '/a', service = 'db'}]", {}, "service: artifacts of service 'db'"),
        ("", {"tests/test.sh": "curl -LsSf https://astral.sh/uv/install.sh | sh\n"}, "network: tests run 'curl'"),
        ("", {"tests/test.sh": "x", "tests/a.py": "get('http://localhost:8080/x')"}, "live process: tests look"),
        ("", {"tests/test.sh": "pgrep server\n"}, "live process: tests look"),
        ("", {"trajectory.json": "{}"}, "other: trajectory.json"),
        ("[verifier]\nenvironment_mode = 'separate'", {"tests/Dockerfile": "FROM other:2\n"}, "image: other:2"),
        ("[verifier.environment]\ndocker_image = 'other:3'", {}, "image: other:3"),
    ],
)
def test_what_a_task_needs_is_named(tmp_path, toml, files, need):
    found = list_directory_needs(tmp_path, toml, files)

    assert any(need in one for one in found), found


def test_what_a_user_allows_is_needed_no_more(tmp_path):
    toml = "[environment]\nnetwork_mode = 'public'"
    files = {"tests/a.py": "get('http://localhost:8080/x')"}

    assert len(list_directory_needs(tmp_path, toml, files)) == 3
    assert list_directory_needs(tmp_path, toml, files, Allowed(network=True, shared_verifier=True)) == []


def test_tests_that_start_what_they_ask_need_no_live_process(tmp_path):
    assert (
        list_directory_needs(
            tmp_path, files={"tests/test.sh": "python3 -m http.server 8080 &\ncurl http://localhost:8080/x\n"}
        )
        == []
    )


PUBLIC, NONE = "public", "no-network"


@pytest.mark.parametrize(
    ("toml", "closed", "opened"),
    [
        ("", (NONE, NONE), (PUBLIC, PUBLIC)),
        ("[environment]\nnetwork_mode = 'no-network'", (NONE, NONE), (NONE, NONE)),
        ("[environment]\nnetwork_mode = 'public'", (PUBLIC, PUBLIC), (PUBLIC, PUBLIC)),
        ("[agent]\nnetwork_mode = 'no-network'", (NONE, NONE), (NONE, PUBLIC)),
        ("[verifier]\nnetwork_mode = 'public'", (NONE, PUBLIC), (PUBLIC, PUBLIC)),
        ("[verifier.environment]\nnetwork_mode = 'no-network'", (NONE, NONE), (PUBLIC, NONE)),
    ],
)
def test_the_network_is_of_the_phase_and_public_where_that_is_allowed(tmp_path, toml, closed, opened):
    directory = write(tmp_path, DIRECTORY | {"task.toml": toml})
    task = read_task_directory(directory, directory)

    assert resolve_network(task, Allowed()) == closed
    assert resolve_network(task, Allowed(network=True)) == opened


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("instruction.md", "instruction.md: expected a readable text"),
        ("environment/Dockerfile", "docker_image, found neither"),
    ],
)
def test_a_missing_part_is_named(tmp_path, missing, message):
    directory = write(tmp_path, {name: text for name, text in DIRECTORY.items() if name != missing})

    with pytest.raises(BadInputError, match=message):
        raise BadInputError("; ".join(list_task_needs(read_task_directory(directory, directory))))


def list_task_needs(task):
    return [need.what for need in list_needs(task, lambda _: True, Allowed())]


def test_tasks_are_found_at_any_depth_and_not_inside_each_other(tmp_path):
    for place in ("b", "a/deep", "a/deep/tests/inner", "a/deep/environment"):
        write(tmp_path / place, DIRECTORY)

    assert find_task_directories(tmp_path) == [tmp_path / "a/deep", tmp_path / "b"]
    assert find_task_directories(tmp_path / "b") == [tmp_path / "b"]
    names = [task.name for task in open_taskset(str(tmp_path)).directories]
    assert names == ["a.deep", "b"]


def test_every_change_of_a_directory_changes_its_digest(tmp_path):
    def digest():
        return read_task_directory(tmp_path, tmp_path).digest

    write(tmp_path, DIRECTORY)
    seen = {digest()}
    for name, text in {"tests/more.py": "x", "solution/solve.sh": "y", "instruction.md": "z", "task.toml": "#"}.items():
        write(tmp_path, {name: text})
        seen.add(digest())
    (tmp_path / "tests/test.sh").chmod(0o755)
    seen.add(digest())
    (tmp_path / "tests/link").symlink_to("more.py")

    assert len(seen | {digest()}) == 7


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside"])
def test_a_link_out_of_a_task_is_refused(tmp_path, target):
    (tmp_path / "outside").write_text("secret")
    directory = write(tmp_path / "task", DIRECTORY)
    (directory / "tests/link").symlink_to(target)

    for read in (
        lambda: read_task_directory(directory, directory),
        lambda: pack_tree(directory / "tests", "/tests", directory),
    ):
        with pytest.raises(BadInputError, match="leads out of the task"):
            read()


@pytest.mark.parametrize(
    ("name", "content", "scores"),
    [
        ("reward.txt", b"1", {"reward": 1.0}),
        ("reward.txt", b" 0.25\n", {"reward": 0.25}),
        ("reward.txt", b"-1e-3", {"reward": -0.001}),
        ("reward.json", b"0.5", {"reward": 0.5}),
        ("reward.json", b'{"reward": 1, "speed": 0.1}', {"reward": 1.0, "speed": 0.1}),
        ("reward.json", b'{"a": 1, "b": 0}', {"reward": 0.5, "a": 1.0, "b": 0.0}),
        ("reward.json", b'{"reward": true}', {"reward": 1.0}),
    ],
)
def test_reward_files_are_numbers(name, content, scores):
    assert read_reward_file(name, content) == scores


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(
            ("reward.txt", text)
            for text in (b"", b"one", b"nan", b"inf", b"1e999", b"1_0", b"0x1", b"1 2", b"\xff", b"1" * 9999)
        ),
        *(
            ("reward.json", text)
            for text in (b"", b"{}", b"[1]", b'"1"', b"NaN", b'{"reward": NaN}', b'{"reward": 1e999}', b'{"a": null}')
        ),
        ("reward.json", b'{"reward": 0, "reward": 1}'),
        ("reward.json", b"[" * 100_000),
        ("reward.json", b"1" * 5_000),
        ("reward.json", b'{"a": "1"}'),
    ],
)
def test_what_is_no_number_is_no_reward(name, content):
    with pytest.raises(BadInputError, match=name):
        read_reward_file(name, content)


def test_a_dockerfile_becomes_steps_with_its_variables(tmp_path):
    (tmp_path / "Dockerfile").write_text(
        "# syntax=docker/dockerfile:1\nARG V=3\nFROM python:${V}-slim AS base\n"
        "ENV A=1 B='x y' PATH=/x:$PATH\nENV OLD two words\n"
        "WORKDIR /a\nWORKDIR $A\nUSER me\nRUN echo \\\n  # no\n\n  $B\n"
    )
    instructions = parse_dockerfile(tmp_path / "Dockerfile")
    steps, config = plan_build(instructions, ImageConfig({"PATH": "/bin"}, "/", "root"))

    assert (find_base(instructions), list(list_unfit(instructions))) == ("python:3-slim", [])
    assert config == ImageConfig({"PATH": "/x:/bin", "A": "1", "B": "x y", "OLD": "two words"}, "/a/1", "me")
    (run,) = [step for step in steps if isinstance(step, Run)]
    assert (run.argv[2].split(), run.workdir) == (["echo", "$B"], "/a/1")


def test_images_are_found_by_name_and_pattern(tmp_path):
    store = ImageStore(tmp_path, "ubuntu:24.04=/a,python:3.*=/b,registry.org:5000/x=/c, alpine:latest=/d")

    known = ("ubuntu:24.04", "docker.io/library/python:3.13-slim", "registry.org:5000/x", "alpine", "debian:12")
    assert [store.find_local(name) for name in known] == ["/a", "/b", "/c", "/d", None]
    with pytest.raises(BadInputError, match="expected a root directory with bin/sh"):
        store.open_base("alpine")


def make_member(name, kind=tarfile.REGTYPE, target="", content=b"evil"):
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, target, 0o6777
    member.size = len(content) if kind == tarfile.REGTYPE else 0
    return member, content


def test_no_archive_writes_outside_of_its_root(tmp_path):
    """Random archives of members, whose names and links lead everywhere, leave what is outside as it was."""
    rng = random.Random(7)
    outside = write(tmp_path / "outside", {"file": "safe", "deep/file": "safe"})
    before = {path: path.stat().st_mtime_ns for path in (outside, *outside.rglob("*"))}
    parts = (
        "a",
        "b",
        "..",
        "/",
        ".",
        str(outside).lstrip("/"),
        "outside",
        "file",
        "deep",
        "proc",
        ".wh.a",
        ".wh..wh..opq",
    )
    kinds = (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)
    for number in range(60):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for _ in range(12):
                name, target = ("/".join(rng.choices(parts, k=rng.randint(1, 4))) for _ in range(2))
                member, content = make_member(name, rng.choice(kinds), rng.choice([target, f"/{target}", str(outside)]))
                archive.addfile(member, io.BytesIO(content))
        root = tmp_path / "roots" / str(number)
        root.mkdir(parents=True)
        buffer.seek(0)
        try:
            with tarfile.open(fileobj=buffer) as archive:
                RootWriter(root).extract(archive)
        except (BadInputError, OSError):
            pass  # links in a circle, or a name that is a file already
        made = [path.lstat().st_mode for path in root.rglob("*")]
        assert all(mode & 0o6000 == 0 for mode in made)
        assert all((mode & 0o170000) not in (0o020000, 0o010000) for mode in made)

    assert {path: path.stat().st_mtime_ns for path in (outside, *outside.rglob("*"))} == before
    assert math.prod(path.stat().st_nlink for path in before if path.is_file()) == 1
