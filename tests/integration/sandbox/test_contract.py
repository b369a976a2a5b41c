"""What every kind of sandbox promises (agent_layer/schema/sandbox/box.py), over each kind that works here."""

import asyncio
import errno
import os
import signal
import tempfile
import time
from pathlib import Path

import msgspec
import pytest

from agent_layer.errors import BadInputError, SandboxError
from envs.sandbox import Resources, SandboxSpec

from ...waiting import until
from .leftovers import list_descendants

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def run_python(box, code, **options):
    return await box.exec(["python3", "-c", code], **options)


async def run_shell(box, script, **options):
    return await box.exec(["sh", "-c", script], **options)


def list_box_directories():
    return set(Path(tempfile.gettempdir()).glob("agent-layer-box-*"))


async def test_a_command_exits_with_its_output(box):
    result = await run_shell(box, "echo out; echo err >&2; exit 3")

    assert (result.status, result.exit_code, result.signal) == ("exited", 3, None)
    assert (result.stdout, result.stderr, result.truncated) == (b"out\n", b"err\n", False)
    assert 0 < result.seconds < 30
    assert result.cpu_seconds < 5
    assert result.peak_memory_mb > 0


@pytest.mark.parametrize("name", ["python3", "/usr/bin/python3"])
async def test_python_runs_code_and_files_as_python_does(box, name):
    await box.write("program.py", b"import sys, helper\nprint(sys.argv, __name__, helper.X)\nsys.exit('bad')")
    await box.write("helper.py", b"X = 5")

    result = await box.exec([name, "program.py", "a"])

    assert (result.exit_code, result.stdout, result.stderr) == (1, b"['program.py', 'a'] __main__ 5\n", b"bad\n")


async def test_an_error_of_python_is_a_traceback_of_that_code_alone(box):
    result = await run_python(box, "def f():\n  raise ValueError('no')\nf()")

    lines = result.stderr.decode().splitlines()
    assert result.exit_code == 1
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].strip() == 'File "<string>", line 3, in <module>'
    assert lines[-1] == "ValueError: no"


async def test_python_waits_for_its_threads_and_calls_its_exit_handlers(box):
    code = (
        "import atexit, threading, time\natexit.register(print, 'exit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.05), print('thread'))).start()"
    )

    assert (await run_python(box, code)).stdout == b"thread\nexit\n"


async def test_modules_of_one_run_do_not_reach_the_next(box):
    await run_python(box, "import math; math.pi = 3; import os; os.environ['X'] = '1'")

    assert (await run_python(box, "import math, os; print(math.pi > 3, 'X' in os.environ)")).stdout == b"True False\n"


async def test_standard_input_reaches_the_command(box):
    data = os.urandom(300_000)

    result = await box.exec(["cat"], stdin=data)

    assert result.stdout == data


async def test_without_input_there_is_none(box):
    assert (await run_shell(box, "wc -c")).stdout.strip() == b"0"


async def test_input_that_is_not_read_holds_nothing_up(box):
    assert (await box.exec(["true"], stdin=b"x" * 1_000_000)).exit_code == 0


async def test_variables_of_the_spec_and_of_the_exec_are_all_there_is(kind, spec, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "canary")
    box = await kind.start(msgspec.structs.replace(spec, env={"A": "1", "B": "1"}), owner="test")
    try:
        result = await box.exec(["env"], env={"B": "2", "C": "3"})
    finally:
        await box.close()

    found = dict(line.split("=", 1) for line in result.stdout.decode().splitlines())
    assert (found["A"], found["B"], found["C"]) == ("1", "2", "3")
    assert set(found) - {"A", "B", "C", "PWD", "SHLVL", "_"} == {"PATH", "HOME", "TMPDIR", "USER", "LOGNAME", "LANG"}


async def test_commands_begin_in_the_work_directory_or_where_they_are_told(box):
    await run_shell(box, "mkdir -p a/b")

    assert (await run_shell(box, "basename $(pwd)", cwd="a/b")).stdout == b"b\n"
    assert (await run_shell(box, "ls")).stdout == b"a\n"
    assert (await run_shell(box, "true", cwd="missing")).exit_code != 0


async def test_programs_that_are_missing_or_no_programs_exit_as_in_a_shell(box):
    await box.write("data", b"no program")

    assert (await box.exec(["no-such-program"])).exit_code == 127
    assert (await box.exec(["./data"])).exit_code == 126


async def test_a_signal_is_reported(box):
    result = await run_shell(box, "kill -USR1 $$")

    assert (result.status, result.exit_code, result.signal) == ("signalled", None, signal.SIGUSR1)


async def test_output_before_a_timeout_is_kept_and_the_box_goes_on(box):
    result = await run_shell(box, "trap '' TERM INT HUP; echo before; sleep 60", seconds=1)

    assert (result.status, result.stdout, result.truncated) == ("timeout", b"before\n", True)
    assert result.seconds < 20
    assert (await run_shell(box, "echo after")).stdout == b"after\n"


async def test_cpu_time_is_limited_too(box):
    result = await run_python(box, "while True: pass", seconds=1)

    assert result.status == "timeout"
    assert result.seconds < 20


@pytest.mark.parametrize("descriptor", [1, 2])
async def test_output_beyond_the_limit_ends_the_command(box, descriptor):
    code = f"import os\nwhile True: os.write({descriptor}, b'x' * 65536)"

    result = await run_python(box, code, max_output=100_000)

    assert (result.status, result.truncated) == ("output_limit", True)
    assert len(result.stdout) + len(result.stderr) == 100_000


async def test_as_much_output_as_allowed_is_no_fault(box):
    result = await run_python(box, "print('x' * 99_999)", max_output=100_000)

    assert (result.status, len(result.stdout)) == ("exited", 100_000)


async def test_a_process_that_takes_too_much_memory_fails_and_the_box_goes_on(box):
    result = await run_python(box, "x = bytearray(1 << 30)\nfor at in range(0, 1 << 30, 4096): x[at] = 1")

    assert result.status == "oom" or b"MemoryError" in result.stderr
    assert (await run_shell(box, "echo after")).stdout == b"after\n"


FILL = """
import itertools
for number in itertools.count():
    with open(f"/tmp/{number}", "wb") as file:
        file.write(bytes(1 << 20))
"""


async def test_code_that_fills_a_disk_larger_than_memory_does_not_end_the_box(kind, spec):
    """Else the policy could turn any failure into one of the machine, which costs it nothing."""
    if kind.name == "process":
        pytest.skip("its files are the host's")
    resources = msgspec.structs.replace(spec.resources, memory_mb=64, disk_mb=512)
    box = await kind.start(msgspec.structs.replace(spec, resources=resources), owner="test")
    try:
        filled = [(await run_python(box, FILL)).status for _ in range(6)]
        after = await run_shell(box, "echo after")
    finally:
        await box.close()

    assert "gone" not in filled
    assert after.stdout == b"after\n"


async def test_questions_at_the_same_time_all_get_their_answer(box):
    assert await asyncio.gather(*(box.is_alive() for _ in range(8))) == [True] * 8


async def test_what_a_command_leaves_running_is_killed(box):
    began = time.monotonic()
    result = await run_shell(box, "(setsid sleep 60 &) ; sleep 60 & echo $!")
    assert time.monotonic() - began < 30

    assert result.status == "exited"
    assert (await run_shell(box, f"kill -0 {int(result.stdout)}")).exit_code != 0


async def test_a_tree_of_any_depth_goes_with_its_box(kind, spec):
    before = list_box_directories()
    box = await kind.start(spec, owner="test")
    await run_python(box, "import os\nfor _ in range(2000): os.mkdir('d'); os.chdir('d')")
    await box.close()

    assert list_box_directories() <= before


async def test_a_box_leaves_the_limits_of_its_worker_alone(kind, spec):
    groups = Path("/proc/self/cgroup")
    before = groups.read_text()  # noqa: ASYNC240  # the kernel answers at once
    boxes = await asyncio.gather(*(kind.start(spec, owner="test") for _ in range(3)))
    after = groups.read_text()  # noqa: ASYNC240  # the kernel answers at once
    await asyncio.gather(*(box.close() for box in boxes))

    assert after == before


async def test_execs_of_one_box_may_overlap(box):
    slow = asyncio.create_task(run_shell(box, "until test -e go; do sleep 0.01; done; echo slow"))

    assert (await run_shell(box, "echo quick")).stdout == b"quick\n"
    await box.write("go", b"")
    assert (await slow).stdout == b"slow\n"


async def test_a_cancelled_exec_is_killed(box):
    running = asyncio.create_task(run_shell(box, "echo $$ > pid; exec sleep 60"))
    pid = (await run_shell(box, "until test -s pid; do sleep 0.01; done; cat pid")).stdout

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    deadline = time.monotonic() + 10
    while (await run_shell(box, f"kill -0 {int(pid)}")).exit_code == 0:
        assert time.monotonic() < deadline


async def test_large_arguments_arrive_whole(box):
    code = f"x = {'1' * 4000!r}\n" * 50 + "print(len(x))"
    assert len(code) > 1 << 17

    assert (await run_python(box, code)).stdout == b"4000\n"


FAMILY = """
import os
own, family = os.getpid(), []
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        state, parent = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()[:2]
    except OSError:
        continue
    if int(parent) == os.getppid() and state not in "ZX":
        family.append(int(name))
print(own, family == [own])
"""


async def test_the_first_command_is_alone_in_its_box_whatever_its_size(kind, spec):
    """A large one once left the spare child to its own devices, where the command could look into its memory."""
    found = []
    for size in (0, 20_000, 200_000):
        box = await kind.start(spec, owner="test")
        try:
            code = FAMILY + f"# {'x' * 100_000}\n" * (size // 100_000) + f"# {'x' * (size % 100_000)}"
            found.append((await run_python(box, code)).stdout.split())
        finally:
            await box.close()

    assert [alone for _, alone in found] == [b"True"] * 3
    if kind.name not in ("process", "docker"):  # whose numbers are the host's, or of processes that come and go
        assert found[1] == found[0], "the spare child was not used"


@pytest.mark.parametrize("argv", [[], "ls", ["a\0b"]])
async def test_what_can_be_no_command_is_refused(box, argv):
    with pytest.raises(ValueError, match="sandbox: "):
        await box.exec(argv)


@pytest.mark.parametrize("data", [b"", b"text\n", bytes(range(256)) * 2000], ids=["empty", "text", "binary"])
async def test_what_is_written_is_read(box, data):
    await box.write("folder/below/file", data, mode=0o750)

    assert await box.read("folder/below/file") == data
    assert [(entry.name, entry.type, entry.size_bytes, entry.mode) for entry in await box.list("folder/below")] == [
        ("file", "file", len(data), 0o750)
    ]


async def test_a_directory_is_listed_by_name_and_links_are_named_as_such(box):
    await run_shell(box, "mkdir d; echo x > b; ln -s /etc a; mkfifo f; printf y > 'name \u00fc\n'")

    found = await box.list()

    assert [(entry.name, entry.type) for entry in found] == [
        *(("a", "link"), ("b", "file"), ("d", "directory"), ("f", "other"), ("name \u00fc\n", "file"))
    ]


async def test_a_name_that_is_no_text_is_listed_with_marks_in_its_place(box):
    await box.exec(["python3", "-c", "open(b'a\\xff', 'w').close()"])

    assert [entry.name for entry in await box.list()] == ["a\N{REPLACEMENT CHARACTER}"]


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("missing", errno.ENOENT),
        (".", errno.EISDIR),
        ("fifo", errno.EINVAL),
        ("large", errno.EFBIG),
        ("loop", errno.ELOOP),
    ],
)
async def test_what_cannot_be_read_raises_the_error_of_the_box(box, path, number):
    await run_shell(box, "mkfifo fifo; head -c 2000 /dev/zero > large; ln -s loop loop")

    with pytest.raises(OSError, match=path) as caught:
        await box.read(path, max_bytes=1999)

    assert caught.value.errno == number
    assert len(await box.read("large", max_bytes=2000)) == 2000


async def test_a_folder_is_not_replaced_by_a_file(box):
    await run_shell(box, "mkdir d")

    with pytest.raises(IsADirectoryError):
        await box.write("d", b"")


async def test_files_are_bounded(box):
    result = await run_shell(box, "head -c 100000000 /dev/zero > large")

    assert (result.status, result.exit_code) != ("exited", 0)
    assert (await run_shell(box, "rm large; echo after > small; cat small")).stdout == b"after\n"


async def test_a_live_process_answers_line_by_line(box):
    async with box.open(["cat"]) as process:
        for line in (b"one\n", b"two\n"):
            process.stdin.write(line)
            assert await asyncio.wait_for(process.stdout.readline(), 30) == line
        process.stdin.close()
        result = await asyncio.wait_for(process.wait(), 30)

    assert (result.status, result.exit_code) == ("exited", 0)


async def test_a_live_process_ends_with_its_context(box):
    async with box.open(["sh", "-c", "echo $$; exec sleep 60"]) as process:
        pid = int(await asyncio.wait_for(process.stdout.readline(), 30))

    assert (await process.wait()).status == "signalled"
    assert (await run_shell(box, f"kill -0 {pid}")).exit_code != 0


async def test_a_terminal_is_one(box):
    # one long sleep could miss the signal: Python looks for it before it sleeps, not while it falls asleep
    code = "import os, time; print(os.isatty(0), os.isatty(1), flush=True)\nwhile True: time.sleep(0.1)"
    async with box.open(["python3", "-c", code], pty=True) as process:
        assert (await asyncio.wait_for(process.stdout.readline(), 30)).strip() == b"True True"
        process.stdin.write(b"\x03")
        assert (await asyncio.wait_for(process.wait(), 30)).signal == signal.SIGINT


async def test_equal_files_have_equal_snapshots(kind, spec, box):
    other = await kind.start(spec, owner="test")
    try:
        for one in (box, other):
            await run_shell(one, "mkdir -p a; echo x > a/b; ln -s a/b link; chmod 700 a/b")
        first, second = await box.snapshot(), await other.snapshot()
        await other.write("a/b", b"changed")
        changed = await other.snapshot()
    finally:
        await other.close()

    assert first == second
    assert first.digest == second.digest != changed.digest


async def test_what_a_snapshot_has_replaces_links_instead_of_writing_through_them(kind, spec, box):
    other = await kind.start(spec, owner="test")
    try:
        await run_shell(box, "mkdir a; echo new > a/link; echo new > a/twin; echo new > a/input")
        await run_shell(other, "mkdir a; echo old | tee kept a/twin > a/other; ln -s ../kept a/link; ln a/twin a/again")
        await run_shell(other, "ln -s /dev/stdin a/input")
        await other.restore(await box.snapshot(["a"]))
        found = await run_shell(other, "cat kept a/again a/link a/twin a/input; ls -l a | grep -c -e '->'")
    finally:
        await other.close()

    assert found.stdout == b"old\nold\nnew\nnew\nnew\n0\n"


async def test_a_snapshot_is_restored(kind, spec, box):
    await run_shell(box, "mkdir -p a; echo x > a/b; ln -s b a/link; chmod 750 a/b; echo no > left-out")
    snapshot = await box.snapshot(["a"])
    other = await kind.start(spec, owner="test")
    try:
        await other.restore(snapshot)

        assert (await run_shell(other, "cat a/link; stat -c %a a/b; ls")).stdout == b"x\n750\na\n"
    finally:
        await other.close()


async def test_a_snapshot_does_not_leave_the_work_directory(box):
    with pytest.raises(OSError, match="link") as caught:
        await box.snapshot(["/etc"])

    assert caught.value.errno == errno.EXDEV


async def test_a_fork_has_the_files_and_goes_its_own_way(box):
    await box.write("a", b"1")
    other = await box.fork()
    try:
        await other.write("a", b"2")

        assert (await box.read("a"), await other.read("a")) == (b"1", b"2")
        assert (other.owner, other.spec) == (box.owner, box.spec)
        assert other.id != box.id
    finally:
        await other.close()


async def test_boxes_do_not_share_files(kind, spec, box):
    other = await kind.start(spec, owner="test")
    try:
        await box.write("mine", b"")

        assert await other.list() == ()
    finally:
        await other.close()


async def test_a_closed_box_is_gone(kind, spec):
    box = await kind.start(spec, owner="test")
    assert await box.is_alive()

    await box.close()
    await box.close()

    assert not await box.is_alive()
    assert (await box.exec(["true"])).status == "gone"
    with pytest.raises(SandboxError):
        await box.read("x")
    with pytest.raises(SandboxError):
        await box.fork()


async def test_closing_a_box_ends_what_runs_in_it(kind, spec):
    before = list_descendants()
    box = await kind.start(spec, owner="test")
    running = asyncio.create_task(run_shell(box, "setsid sleep 61 & echo > up; sleep 60"))
    assert (await run_shell(box, "until test -e up; do sleep 0.01; done")).exit_code == 0

    await box.close()

    assert (await running).status == "gone"
    await until(lambda: not list_descendants() - before)


@pytest.mark.parametrize(
    "changes", [{"image": "/no/such/directory"}, {"workdir": "relative"}, {"resources": Resources(cpus=0)}]
)
async def test_a_spec_that_the_kind_cannot_make_is_refused(kind, changes):
    with pytest.raises(BadInputError, match="sandbox: "):
        await kind.start(SandboxSpec(kind=kind.name, **changes), owner="test")


async def test_a_kind_says_what_it_stops(kind):
    assert "Stops:" in kind.stops
    assert "Does not stop:" in kind.stops
    assert (await kind.probe()).reason
