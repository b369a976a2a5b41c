"""Tools in real boxes of kind namespace."""

import asyncio

import pytest
import pytest_asyncio

from agent_layer.errors import SandboxError
from agent_layer.schema.task import TaskView
from envs.env_context import AttemptContext
from envs.sandbox import Resources, SandboxSpec
from envs.sandbox.registry import make_kind
from envs.tools import edit_file, list_files, python, read_file, shell, write_file

from ...boxes import require_kind

KIND = "namespace"
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kind():
    require_kind(KIND)
    made = make_kind(KIND)
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def context(kind):
    spec = SandboxSpec(kind=KIND, resources=Resources(memory_mb=256, disk_mb=64, processes=32, files=512))
    box = await kind.start(spec, owner="test")
    yield AttemptContext(
        task=TaskView(id="t", task_type="default"), seed=1, clock=lambda: 0.0, find_sandbox=lambda: box
    )
    await box.close()


async def use(tool, context, **arguments):
    return (await tool(context, **arguments)).text


async def test_a_shell_keeps_its_directory_and_variables(context):
    assert await use(shell, context, command="mkdir -p a/b && cd a/b && export WORD='two words' SIGN=\"it's\"") == (
        "[no output]"
    )
    assert await use(shell, context, command='pwd; echo "$WORD $SIGN"') == "/work/a/b\ntwo words it's"
    assert await use(shell, context, command="cd ..; rmdir b; exit 3") == "[exit status 3]"
    assert await use(shell, context, command="pwd") == "/work/a"
    assert await use(shell, context, command="cd /tmp && rm -rf /work/a && cd -; pwd") != ""
    assert await use(shell, context, command="echo still here") == "still here"


async def test_a_shell_shows_output_in_its_order_and_how_it_ended(context):
    assert await use(shell, context, command="echo one; echo two >&2; echo three") == "one\ntwo\nthree"
    assert "syntax error" in await use(shell, context, command="if")
    assert "[killed after 0.5 s" in await use(shell, context, command="echo begun; sleep 60", seconds=0.5)
    assert await use(shell, context, command="kill -9 $$") == "[ended by signal 9]"
    assert await use(shell, context, command="cat") == "[no output]"


async def test_a_flood_is_cut_in_its_middle(context):
    text = await use(shell, context, command="seq 1 200000; echo the end")

    assert text.startswith("1\n2\n3\n")
    assert text.endswith("the end")
    assert "characters cut out" in text
    assert "killed after 4 MB" in await use(shell, context, command="yes")


async def test_python_prints_and_fails_as_a_program(context):
    assert await use(python, context, code="print(sum(range(10)))") == "45"
    text = await use(python, context, code="import sys\nprint('x')\nraise ValueError('no')")
    assert text.startswith("x\n")
    assert "ValueError: no" in text
    assert text.endswith("[exit status 1]")


async def test_a_box_that_is_lost_is_infrastructure(kind):
    box = await kind.start(SandboxSpec(kind=KIND), owner="test")
    await box.close()
    lost = AttemptContext(task=TaskView(id="t", task_type="d"), seed=1, clock=lambda: 0.0, find_sandbox=lambda: box)

    for tool, arguments in ((shell, {"command": "true"}), (read_file, {"path": "a"}), (list_files, {})):
        with pytest.raises(SandboxError):
            await tool(lost, **arguments)


async def test_a_file_is_written_listed_read_and_edited(context):
    code = "def add(a, b):\n    return a - b\n\n\ndef sub(a, b):\n    return a - b\n"
    assert await use(write_file, context, path="pkg/ops.py", content=code) == "wrote pkg/ops.py, 6 lines"
    await use(shell, context, command="chmod 755 pkg/ops.py; ln -s ops.py pkg/link")
    assert await use(list_files, context, depth=2) == "pkg/\npkg/link  link\npkg/ops.py  66 bytes"
    assert await use(read_file, context, path="pkg/ops.py", first_line=5) == "5  def sub(a, b):\n6      return a - b"

    twice = await edit_file(context, path="pkg/ops.py", old="return a - b", new="return a + b")
    assert twice.is_error
    assert "contains this text 2 times, on lines 2, 6" in twice.text
    edited = await use(
        edit_file, context, path="pkg/ops.py", old="(a, b):\n    return a - b\n\n", new="(a, b):\n    return a + b\n\n"
    )
    assert edited.splitlines()[:3] == ["edited pkg/ops.py:", "1  def add(a, b):", "2      return a + b"]
    box = context.sandbox
    assert (await box.read("pkg/ops.py")).decode() == code.replace("a - b", "a + b", 1)
    assert [one.mode for one in await box.list("pkg") if one.name == "ops.py"] == [0o755]


@pytest.mark.parametrize(
    ("old", "message"),
    [
        ("return  1", "differs in white space only"),
        ("def f():\n    return 2", "its first line is at line 1, what follows differs"),
        ("nothing", "does not contain this text; read the file again"),
        ("", "found none"),
        ("return 1", "equal"),
    ],
)
async def test_an_edit_that_does_not_match_says_why(context, old, message):
    await context.sandbox.write("f.py", b"def f():\n    return 1\n")

    result = await edit_file(context, path="f.py", old=old, new="return 1")

    assert result.is_error
    assert message in result.text
    assert await context.sandbox.read("f.py") == b"def f():\n    return 1\n"


async def test_lines_end_as_they_did(context):
    await context.sandbox.write("dos.txt", b"one\r\ntwo\r\n")

    await use(edit_file, context, path="dos.txt", old="two", new="three")

    assert await context.sandbox.read("dos.txt") == b"one\r\nthree\r\n"


async def test_what_a_file_tool_cannot_do_is_answered(context):
    await context.sandbox.write("binary", bytes(range(256)))

    for tool, arguments, message in (
        (read_file, {"path": "none"}, "none: No such file or directory"),
        (read_file, {"path": "."}, "."),
        (read_file, {"path": "binary"}, "no UTF-8 text"),
        (edit_file, {"path": "none", "old": "a", "new": "b"}, "No such file"),
        (write_file, {"path": "binary/x", "content": ""}, "binary/x: "),
        (write_file, {"path": "/etc/passwd", "content": ""}, "/etc/passwd: "),
        (list_files, {"path": "none"}, "No such file"),
        (read_file, {"path": "a\0b"}, ""),
    ):
        result = await tool(context, **arguments)
        assert result.is_error, arguments
        assert message in result.text


async def test_a_long_file_is_read_in_parts(context):
    await context.sandbox.write("long.txt", b"".join(b"line %d\n" % number for number in range(1, 1001)))

    first = await use(read_file, context, path="long.txt")
    assert first.splitlines()[0] == "  1  line 1"
    assert first.splitlines()[-1] == "[600 more lines; go on with first_line=401]"
    last = await use(read_file, context, path="long.txt", first_line=801, last_line=900)
    assert (len(last.splitlines()), last.splitlines()[-1]) == (100, "900  line 900")
    assert (await read_file(context, path="long.txt", first_line=2000)).is_error


async def test_tools_of_one_box_run_side_by_side(context):
    texts = await asyncio.gather(*(use(shell, context, command=f"echo {number}") for number in range(8)))

    assert texts == [str(number) for number in range(8)]
