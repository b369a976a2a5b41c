"""What every kind of sandbox promises (agent_layer/schema/sandbox/box.py), over each kind that works here.

The same holds for boxes that a supervisor's client has: ``supervised``.
"""

import asyncio
import errno
import os
import signal
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from agent_layer.errors import BadInputError, SandboxError
from envs.sandbox import Resources, SandboxSpec
from envs.sandbox.registry import list_kind_names

from ...waiting import scaled, until, within
from .conftest import open_kind, open_supervised
from .docker_daemon import list_box_processes
from .leftovers import find_by_argument, is_alive, list_descendants, list_directories

pytestmark = pytest.mark.asyncio(loop_scope="module")
SUPERVISED = "supervised"


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[*list_kind_names(), SUPERVISED])
async def kind(request):
    """A kind that works here, or the supervisor over one."""
    if request.param != SUPERVISED:
        async with open_kind(request.param, request) as made:
            yield made
        return
    async with open_supervised() as made:
        yield made


async def run_python(box, code, **options):
    return await box.exec(["python3", "-c", code], **{"seconds": scaled(30), **options})


async def run_shell(box, script, **options):
    return await box.exec(["sh", "-c", script], **{"seconds": scaled(30), **options})


async def read_line(process):
    async with within(60, "a line of a live process"):
        return await process.stdout.readline()


async def test_a_command_exits_with_its_output(box):
    result = await run_shell(box, "echo out; echo err >&2; exit 3")

    assert (result.status, result.exit_code, result.signal) == ("exited", 3, None)
    assert (result.stdout, result.stderr, result.truncated) == (b"out\n", b"err\n", False)
    assert result.seconds > 0
    assert result.cpu_seconds < 5
    assert result.peak_memory_mb > 0


@pytest.mark.parametrize("name", ["python3", "/usr/bin/python3"])
async def test_python_runs_code_and_files_as_python_does(box, name):
    await box.write("programs/program.py", b"import sys, helper\nprint(sys.argv, __name__, helper.X)\nsys.exit('bad')")
    await box.write("programs/helper.py", b"X = 5")

    result = await box.exec([name, "program.py", "a"], cwd="programs")

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
    await run_shell(box, "mkdir -p begin/here")

    assert (await run_shell(box, "basename $(pwd)", cwd="begin/here")).stdout == b"here\n"
    assert (await run_shell(box, "ls begin")).stdout == b"here\n"
    assert (await run_shell(box, "true", cwd="missing")).exit_code != 0


async def test_programs_that_are_missing_or_no_programs_exit_as_in_a_shell(box):
    await box.write("data", b"no program")

    assert (await box.exec(["no-such-program"])).exit_code == 127
    assert (await box.exec(["./data"])).exit_code == 126


async def test_a_signal_is_reported(box):
    result = await run_shell(box, "kill -USR1 $$")

    assert (result.status, result.exit_code, result.signal) == ("signalled", None, signal.SIGUSR1)


async def test_output_before_a_timeout_is_kept_and_the_box_goes_on(box):
    for seconds in (0.2, 2, 20):  # a crowded machine takes more before the command even begins
        result = await run_shell(box, "trap '' TERM INT HUP; echo before; sleep 600", seconds=seconds)
        if result.stdout:
            break

    assert (result.status, result.stdout, result.truncated) == ("timeout", b"before\n", True)
    assert result.seconds < scaled(seconds + 10)
    assert (await run_shell(box, "echo after")).stdout == b"after\n"


async def test_cpu_time_is_limited_too(box):
    limit = await run_python(box, "import resource; print(*resource.getrlimit(resource.RLIMIT_CPU))", seconds=7)
    result = await run_shell(box, "kill -XCPU $$")  # as the kernel does at the limit

    assert limit.stdout == b"7 8\n"
    assert result.status == "timeout"


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
    async def all_answer():
        return all(await asyncio.gather(*(box.is_alive() for _ in range(8))))

    await until(all_answer)  # each has a second, in which a crowded machine may not answer


async def test_what_a_command_leaves_running_is_killed(box):
    result = await run_shell(box, "(setsid sleep 600 &) ; sleep 600 & echo $!", seconds=scaled(60))

    assert result.status == "exited"
    assert (await run_shell(box, f"kill -0 {int(result.stdout)}")).exit_code != 0


async def test_a_tree_of_any_depth_goes_with_its_box(kind, spec):
    def list_own_directories():
        return {one for pid in (os.getpid(), *list_descendants()) for one in list_directories(pid)}

    before = list_own_directories()
    box = await kind.start(spec, owner="test")
    await run_python(box, "import os\nfor _ in range(2000): os.mkdir('d'); os.chdir('d')")
    await box.close()

    assert list_own_directories() <= before


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
    running = asyncio.create_task(run_shell(box, "echo $$ > pid; exec sleep 600", seconds=600))
    pid = (await run_shell(box, "until test -s pid; do sleep 0.01; done; cat pid")).stdout

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    async def has_ended():
        return (await run_shell(box, f"kill -0 {int(pid)}")).exit_code != 0

    await until(has_ended)


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
    if kind.name in ("namespace", "session"):  # in others, threads of the runtime or processes of the host take numbers
        assert found[1] == found[0], "the spare child was not used"


@pytest.mark.parametrize("argv", [[], "ls"])
async def test_what_can_be_no_command_is_refused(box, argv):
    with pytest.raises(ValueError, match="sandbox: "):
        await box.exec(argv)


@pytest.mark.parametrize("argv", [["a\0b"], ["echo", "\ud800"]])
async def test_a_command_that_no_system_can_run_ends_like_one_that_is_missing(box, argv):
    result = await box.exec(argv)

    assert (result.status, result.exit_code) == ("exited", 125)


@pytest.mark.parametrize("data", [b"", b"text\n", bytes(range(256)) * 2000], ids=["empty", "text", "binary"])
async def test_what_is_written_is_read(box, data):
    await box.write("folder/below/file", data, mode=0o750)

    assert await box.read("folder/below/file") == data
    assert [(entry.name, entry.type, entry.size_bytes, entry.mode) for entry in await box.list("folder/below")] == [
        ("file", "file", len(data), 0o750)
    ]


async def test_a_directory_is_listed_by_name_and_links_are_named_as_such(box):
    await run_shell(box, "mkdir -p all/d; cd all; echo x > b; ln -s /etc a; mkfifo f; printf y > 'name \u00fc\n'")

    found = await box.list("all")

    assert [(entry.name, entry.type) for entry in found] == [
        *(("a", "link"), ("b", "file"), ("d", "directory"), ("f", "other"), ("name \u00fc\n", "file"))
    ]


async def test_a_name_that_is_no_text_is_listed_with_marks_in_its_place(box):
    await run_python(box, "import os; os.mkdir('bytes'); open(b'bytes/a\\xff', 'w').close()")

    assert [entry.name for entry in await box.list("bytes")] == ["a\N{REPLACEMENT CHARACTER}"]


async def test_what_cannot_be_read_raises_the_error_of_the_box(box):
    await run_shell(box, "mkdir no; cd no; mkfifo fifo; head -c 2000 /dev/zero > large; ln -s loop loop")
    reasons = {"missing": errno.ENOENT, ".": errno.EISDIR, "fifo": errno.EINVAL, "large": errno.EFBIG}

    for name, number in {**reasons, "loop": errno.ELOOP}.items():
        with pytest.raises(OSError, match=f"no/{name}") as caught:
            await box.read(f"no/{name}", max_bytes=1999)
        assert caught.value.errno == number
    assert len(await box.read("no/large", max_bytes=2000)) == 2000


async def test_a_folder_is_not_replaced_by_a_file(box):
    await run_shell(box, "mkdir folder-in-place")

    with pytest.raises(IsADirectoryError):
        await box.write("folder-in-place", b"")


async def test_files_are_bounded(box):
    result = await run_shell(box, "head -c 100000000 /dev/zero > large")

    assert (result.status, result.exit_code) != ("exited", 0)
    assert (await run_shell(box, "rm large; echo after > small; cat small")).stdout == b"after\n"


async def test_a_live_process_answers_line_by_line(box):
    async with box.open(["cat"]) as process:
        for line in (b"one\n", b"two\n"):
            process.stdin.write(line)
            assert await read_line(process) == line
        process.stdin.close()
        async with within(60, "its end"):
            result = await process.wait()

    assert (result.status, result.exit_code) == ("exited", 0)


async def test_a_live_process_ends_with_its_context(box):
    async with box.open(["sh", "-c", "echo $$; exec sleep 60"]) as process:
        pid = int(await read_line(process))

    assert (await process.wait()).status == "signalled"
    assert (await run_shell(box, f"kill -0 {pid}")).exit_code != 0


async def test_a_terminal_is_one(box):
    # one long sleep could miss the signal: Python looks for it before it sleeps, not while it falls asleep
    code = "import os, time; print(os.isatty(0), os.isatty(1), flush=True)\nwhile True: time.sleep(0.1)"
    async with box.open(["python3", "-c", code], pty=True) as process:
        assert (await read_line(process)).strip() == b"True True"
        process.stdin.write(b"\x03")
        async with within(60, "its end"):
            result = await process.wait()
    assert result.signal == signal.SIGINT


async def test_equal_files_have_equal_snapshots(box, fresh_box):
    for one in (box, fresh_box):
        await run_shell(one, "mkdir -p same; echo x > same/b; ln -s same/b same/link; chmod 700 same/b")
    first, second = await box.snapshot(["same"]), await fresh_box.snapshot(["same"])
    whole = await fresh_box.snapshot()
    await fresh_box.write("same/b", b"changed")

    assert first == second
    assert first.digest == second.digest != (await fresh_box.snapshot(["same"])).digest
    assert whole.digest not in (first.digest, (await fresh_box.snapshot()).digest)


async def test_what_a_snapshot_has_replaces_links_instead_of_writing_through_them(box, fresh_box):
    await run_shell(box, "mkdir new; echo new > new/link; echo new > new/twin; echo new > new/input")
    old = "mkdir new; echo old | tee kept new/twin > new/other; ln -s ../kept new/link; ln new/twin new/again"
    await run_shell(fresh_box, f"{old}; ln -s /dev/stdin new/input")
    await fresh_box.restore(await box.snapshot(["new"]))
    found = await run_shell(fresh_box, "cat kept new/again new/link new/twin new/input; ls -l new | grep -c -e '->'")

    assert found.stdout == b"old\nold\nnew\nnew\nnew\n0\n"


async def test_a_snapshot_is_restored(box, fresh_box):
    await run_shell(box, "mkdir -p some; echo x > some/b; ln -s b some/link; chmod 750 some/b; echo no > left-out")
    await fresh_box.restore(await box.snapshot(["some"]))

    assert (await run_shell(fresh_box, "cat some/link; stat -c %a some/b; ls")).stdout == b"x\n750\nsome\n"


async def test_a_snapshot_does_not_leave_the_work_directory(box):
    with pytest.raises(OSError, match="link") as caught:
        await box.snapshot(["/etc"])

    assert caught.value.errno == errno.EXDEV


async def test_a_fork_has_the_files_and_goes_its_own_way(box):
    await box.write("forked", b"1")
    other = await box.fork()
    try:
        await other.write("forked", b"2")

        assert (await box.read("forked"), await other.read("forked")) == (b"1", b"2")
        assert (other.owner, other.spec) == (box.owner, box.spec)
        assert other.id != box.id
    finally:
        await other.close()


async def test_boxes_do_not_share_files(box, fresh_box):
    await box.write("mine", b"")

    assert await fresh_box.list() == ()


async def test_a_closed_box_is_gone(kind, spec):
    box = await kind.start(spec, owner="test")
    await until(box.is_alive)

    await box.close()
    await box.close()

    assert not await box.is_alive()
    assert (await box.exec(["true"])).status == "gone"
    with pytest.raises(SandboxError):
        await box.read("x")
    with pytest.raises(SandboxError):
        await box.fork()


async def test_closing_a_box_ends_what_runs_in_it(kind, spec):
    box = await kind.start(spec, owner="test")
    running = asyncio.create_task(run_shell(box, "setsid sleep 61.5 & sleep 61.5", seconds=600))
    sleeping = await until(lambda: _find_two(kind.name))

    await box.close()

    assert (await running).status == "gone"
    await until(lambda: not any(map(is_alive, sleeping)))


def _find_two(kind_name):
    found = find_by_argument(list_box_processes(kind_name, os.getpid()), "61.5")
    return found if len(found) == 2 else None


@pytest.mark.parametrize(
    "changes", [{"image": "/no/such/directory"}, {"workdir": "relative"}, {"resources": Resources(cpus=0)}]
)
async def test_a_spec_that_the_kind_cannot_make_is_refused(kind, changes):
    with pytest.raises(BadInputError, match="sandbox: "):
        await kind.start(SandboxSpec(kind=kind.name, **changes), owner="test")
