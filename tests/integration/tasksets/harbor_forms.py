"""Harbor directories in every form of the schema, made where a test asks: a toy task each, whose reference is known."""

import hashlib
import io
import json
import tarfile

BASE = "base:1"
_REWARDS = {
    "txt": "echo {0} > /logs/verifier/reward.txt",
    "float": "printf ' {0}.0\\n' > /logs/verifier/reward.txt",
    "json": "printf '{{\"reward\": {0}}}' > /logs/verifier/reward.json",
    "number": "printf {0} > /logs/verifier/reward.json",
    "several": 'printf \'{{"lines": {0}, "words": {0}}}\' > /logs/verifier/reward.json',
    "both": 'echo 7 > /logs/verifier/reward.txt; printf \'{{"reward": {0}, "s": 0.5}}\' > /logs/verifier/reward.json',
}
_APP = f"FROM {BASE}\nWORKDIR /app\n"


def form(  # one argument for each part of a directory
    toml="",
    *,
    environment=_APP,
    check='[ "$(cat out.txt)" = ok ]',
    solve="echo ok > out.txt",
    reward="txt",
    files=None,
    shebang="#!/bin/sh\n",
    test=None,
    end="",
):
    """Return a directory's files by path: texts, or bytes."""
    write = _REWARDS[reward]
    script = test or f"{shebang}if {check}; then {write.format(1)}; else {write.format(0)}; fi\n{end}"
    found = {"task.toml": toml, "instruction.md": "Do it.\n", "tests/test.sh": script}
    found["solution/solve.sh"] = f"#!/bin/sh\nset -e\n{solve}\n"
    if environment is not None:
        found["environment/Dockerfile"] = environment
    return found | (files or {})


_SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'
_UNITTEST = """import pathlib, unittest

class Result(unittest.TestCase):
    def test_it(self):
        self.assertEqual(pathlib.Path("/app/out.txt").read_text(), "ok\\n")

found = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(Result))
pathlib.Path("/logs/verifier/reward.txt").write_text(str(int(found.wasSuccessful())))
"""

FORMS = {
    "empty-file": form(),
    "version-1-0": form('version = "1.0"\n[environment]\nmemory = "1G"\nstorage = "512M"\ncpus = 1\n'),
    "version-1-1": form(
        'schema_version = "1.1"\nsource = "somewhere"\n[metadata]\ndifficulty = "easy"\ntags = ["a"]\n'
    ),
    "version-1-2": form(
        'schema_version = "1.2"\n[environment]\nallow_internet = false\nos = "Linux"\n', reward="float"
    ),
    "version-1-3": form('schema_version = "1.3"\n[task]\nname = "org/it"\nauthors = [{name = "a"}]\n', reward="json"),
    "version-1-4": form(
        'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\ncpus = 0.5\n', reward="number"
    ),
    "several-rewards": form(reward="several"),
    "json-wins": form(reward="both"),
    "unknown-keys": form('colour = "red"\n[environment]\nshape = 1\n[later]\na = 1\n'),
    "no-workdir": form(
        environment=f"FROM {BASE}\n", check='[ "$(cat /out.txt)" = ok ]', solve="pwd; echo ok > /out.txt"
    ),
    "relative-workdir": form(
        environment=f"FROM {BASE}\nWORKDIR /a\nWORKDIR b/c\n", check='[ "$(pwd)" = /a/b/c ] && [ -s out.txt ]'
    ),
    "workdir-of-the-file": form('[environment]\nworkdir = "/srv/data"\n', check="[ -s /srv/data/out.txt ]"),
    "copied": form(
        environment=_APP
        + "COPY a.txt b*.txt ./\nCOPY --chmod=755 run /usr/bin/run\nCOPY deep /opt/deep\nCOPY . all/\n",
        files={
            "environment/a.txt": "a",
            "environment/b 1.txt": "b",
            "environment/run": "#!/bin/sh\necho ok\n",
            "environment/deep/er/x": b"\0\xff",
            "environment/skipped.log": "",
            "environment/.dockerignore": "*.log\nDockerfile\n",
        },
        solve="test -f a.txt\ntest -f 'b 1.txt'\ntest -s /opt/deep/er/x\ntest -f all/deep/er/x\n"
        "test ! -e all/skipped.log\ntest ! -e all/Dockerfile\nrun > out.txt",
    ),
    "copied-texts": form(
        environment='ARG tag=1\nFROM base:${tag}\nARG word=ok\nENV TWO="${word}"\nWORKDIR /app\n'
        "COPY <<EOF /app/in.txt\n$TWO\nEOF\nCOPY <<'EOF' plain\n$TWO\nEOF\n",
        solve="test \"$(cat plain)\" = '$TWO'\ncat in.txt > out.txt",
    ),
    "run": form(
        environment=_APP + "RUN mkdir -p data && \\\n    # a remark\n    echo ok > data/in && rm /etc/group\n"
        'RUN ["sh", "-c", "echo ok >> data/in"]\nRUN <<EOF\nset -e\nln -s data/in link\nchmod 600 data/in\nEOF\n',
        check='[ "$(cat out.txt)" = "$(cat data/in)" ] && [ ! -e /etc/group ] && [ -h link ]',
        solve="cat link > out.txt",
    ),
    "run-between-copies": form(
        environment=_APP + "COPY one /app/one\nRUN cat one > two && rm one\nCOPY one /app/three\nENV A=1 B='2 3'\n",
        files={"environment/one": "1\n"},
        check='[ ! -e one ] && [ "$(cat out.txt)" = 1 ] && [ "$A$B" = "12 3" ]',
        solve="cat two > out.txt; test -s three",
    ),
    "variables": form(
        '[environment.env]\nPLACE = "${NOT_SET_ANYWHERE:-here}"\n[verifier.env]\nWANTED = "ok"\n[solution.env]\n'
        'SAY = "ok"\n',
        check='[ "$(cat out.txt)" = "$WANTED" ] && [ "$PLACE" = here ]',
        solve='test "$PLACE" = here; echo "$SAY" > out.txt',
    ),
    "users-and-limits": form(
        '[agent]\nuser = "root"\ntimeout_sec = 60.0\n[verifier]\nuser = 0\ntimeout_sec = 30\n',
        environment=_APP + 'USER app\nLABEL a=b\nEXPOSE 80\nVOLUME /x\nCMD ["sleep", "infinity"]\n',
    ),
    "health-check": form('[environment.healthcheck]\ncommand = "test -d /app"\nretries = 1\n'),
    "image-directory": form(
        f'[environment]\ndocker_image = "{BASE}"\n',
        environment=None,
        check="[ -s /work/out.txt ]",
        solve="mkdir /work; echo ok > /work/out.txt",
    ),
    "image-layout": form(
        '[environment]\ndocker_image = "layout:1"\n',
        environment=None,
        check='[ -s /layer/out.txt ] && [ "$OF" = image ] && [ ! -e /etc/group ]',
    ),
    "image-archive": form(
        environment="FROM saved:1\nRUN echo ok > made\n", solve="cat made > out.txt", check="[ -s /layer/out.txt ]"
    ),
    "changes-anywhere": form(
        solve="rm /srv/data/mark\nmkdir -p /opt/it\necho ok > out.txt\nln out.txt hard\n"
        "ln -s /app/out.txt /opt/it/soft\n"
        "printf '#!/bin/sh\\necho ok\\n' > /usr/bin/say\nchmod 755 /usr/bin/say\necho more >> /etc/passwd\n"
        "mkdir -m 700 secret\n"
        "echo x > '/tmp/a b'\ntouch secret/none\nchmod 000 secret/none",
        check='[ ! -e /srv/data/mark ] && [ "$(say)$(cat /opt/it/soft)" = okok ] && [ -s "/tmp/a b" ]'
        ' && [ -d secret ] && [ "$(stat -c %h hard)" = 2 ] && wc -l /etc/passwd',
    ),
    "removed-folder": form(
        environment=_APP + "RUN mkdir -p old/deep && echo x > old/deep/file\n",
        check="[ ! -e old ] && [ -s out.txt ]",
        solve="rm old/deep/file\nfind old -depth -type d -exec rm -d {} +\necho ok > out.txt",
    ),
    "without-shebang": form(shebang=""),
    "failing-status": form(end="exit 3\n"),
    "python-tests": form(
        test="#!/bin/sh\npython3 /tests/check.py\n", files={"tests/check.py": _UNITTEST, "tests/deep/more.txt": "x"}
    ),
    "separate": form(
        f'artifacts = ["/app/out.txt"]\n{_SEPARATE}',
        files={"tests/Dockerfile": f"FROM {BASE}\nWORKDIR /app\nCOPY . /tests/\nRUN test -f /tests/test.sh\n"},
    ),
    "separate-without-tests-inside": form(
        f'artifacts = ["/app/out.txt"]\n{_SEPARATE}', files={"tests/Dockerfile": f"FROM {BASE}\nWORKDIR /app\n"}
    ),
    "separate-in-the-agents-image": form(f'artifacts = ["/app/out.txt"]\n{_SEPARATE}'),
    "separate-by-an-image": form(
        'artifacts = ["/app/out.txt"]\n[verifier.environment]\n' + f'docker_image = "{BASE}"\nworkdir = "/app"\n'
    ),
    "separate-by-its-environment": form(
        'artifacts = ["/app/out.txt"]\n[verifier.environment]\nmemory_mb = 512\n[verifier.environment.env]\nX = "1"\n',
        check='[ "$X" = 1 ] && [ -s out.txt ]',
    ),
    "separate-published": form(
        _SEPARATE, solve="echo ok > /logs/artifacts/out.txt", check="[ -s /logs/artifacts/out.txt ]"
    ),
    "separate-folder": form(
        'artifacts = [{source = "/app/out", exclude = ["*.tmp"], destination = "out"}]\n' + _SEPARATE,
        solve="mkdir -p out/deep\necho ok > out/deep/file\ntouch out/a.tmp",
        check="[ -s out/deep/file ] && [ ! -e out/a.tmp ]",
    ),
    "odd-unicode": form(
        environment=_APP + "COPY ордер/ ./ордер/\nENV NÄME=ok\n",
        files={
            "instruction.md": "\ufeffÜbersetze 日本. 🐍\u2028So.\r\n",
            "environment/ордер/файл é\u2028.txt": "ok\n",
            "tests/данные/ожидание.txt": "ok\n",
        },
        solve="cat ордер/файл* > out.txt",
        check='[ "$(cat out.txt)" = "$(cat /tests/данные/ожидание.txt)" ]',
    ),
    "odd-crlf": form(
        '\ufeffschema_version = "1.3"\r\n[environment]\r\ncpus = 1\r\n',
        environment="\ufeffFROM base:1\r\n\r\nWORKDIR /app\r\nRUN echo ok \\\r\n  > in\r\n"
        "COPY <<EOF x\r\nok\r\nEOF\r\n",
        files={"instruction.md": "Do\r\nit.\r\n"},
        solve='cat in > out.txt; test "$(cat x)" = ok',
    ),
    "odd-dockerfile": form(
        environment="# syntax=docker/dockerfile:1\n# a remark\nfrom\t--platform=linux/amd64  base:1  as only\n"
        'workdir\t/app\nRun ["sh", "-c", "echo $((1<<n)) > shifted"]\nRUN n=3; echo $((1<<n)) > shifted\n'
        'COPY ["a b.txt", "c.txt", "./to/"]\nCOPY --link --chown=app:app --chmod=0640 c.txt d.txt\n'
        'ENV A b c\nENV B="x y" C=$A\nWORKDIR to\nWORKDIR ../\nRUN --mount=type=cache,target=/c --network=none true\n'
        "CMD []\nHEALTHCHECK NONE\n",
        files={"environment/a b.txt": "ok\n", "environment/c.txt": "c"},
        solve='test "$(cat shifted)" = 8; test "$C$B" = "b cx y"; test -s to/c.txt; test "$(cat d.txt)" = c\n'
        'cat "to/a b.txt" > out.txt',
    ),
    "odd-ignored": form(
        environment=_APP + "COPY src /app/src\nCOPY *.md ./\n",
        files={
            "environment/.dockerignore": "# none of these\n**/*.tmp\n!src/kept.tmp\nsrc/build/\n/src/deep/**/x\n"
            "notes?.md\n",
            **{f"environment/{name}": "x" for name in ("src/a.tmp", "src/kept.tmp", "src/build/o", "src/deep/er/x")},
            **{f"environment/{name}": "x" for name in ("src/deep/y", "notes1.md", "readme.md", "src/b/c.tmp")},
            ".harborignore": "src\n",
        },
        solve="test ! -e src/a.tmp; test -e src/kept.tmp; test ! -e src/build; test ! -e src/deep/er/x\n"
        "test -e src/deep/y; test ! -e notes1.md; test -e readme.md; test ! -e src/b/c.tmp; echo ok > out.txt",
    ),
    "odd-limits": form(
        "[environment]\ncpus = 64\nmemory_mb = 1048576\nstorage_mb = 1048576\nbuild_timeout_sec = 604800\n"
        "[agent]\ntimeout_sec = 604800\n[verifier]\ntimeout_sec = 604800\n",
        environment=_APP + "RUN echo ok > in\n",
    ),
    "odd-large-instruction": form(files={"instruction.md": "Do it. " * 300_000}),
    "odd-folder-workdir": form('[environment]\nworkdir = "/srv/deep/er/"\n', check="[ -s /srv/deep/er/out.txt ]"),
    "odd-data-like-tasks": form(files={"environment/tasks.jsonl": "no task\n", "environment/sub/task.toml": "no"}),
    "odd-many-rewards": form(
        test="#!/bin/sh\n[ -s out.txt ] && n=1 || n=0\n"
        'printf \'{"reward": %s, "é": 1e-3, "a b": -2, "ok": true}\' $n > /logs/verifier/reward.json\n',
    ),
    "odd-test-in-python": form(test="#!/usr/bin/env python3\n" + _UNITTEST),
    "odd-fifo-left": form(solve="mkfifo pipe; ln -s nowhere dangling; touch -d @1 old; echo ok > out.txt"),
    "separate-relative": form(f'artifacts = ["out.txt"]\n{_SEPARATE}'),
}
"""By name. The reference of each scores 1, and an agent that does nothing 0."""


def write_directory(folder, files):
    """Write a directory."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def write_layout(folder, root, *, is_saved):
    """Write an OCI image of a root directory: a layer of it, and one that removes a file and adds a folder.

    Args:
        folder: an empty one.
        root: the root directory.
        is_saved: as ``docker save`` wrote it before it wrote layouts.
    """
    first, second = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=first, mode="w:gz", compresslevel=1) as archive:
        archive.add(root, ".")
    with tarfile.open(fileobj=second, mode="w") as archive:
        for name, kind in {"layer": tarfile.DIRTYPE, "etc/.wh.group": tarfile.REGTYPE, "bin": tarfile.DIRTYPE}.items():
            member = tarfile.TarInfo(name)
            member.type, member.mode = kind, 0o755
            archive.addfile(member)
    config = json.dumps({"config": {"Env": ["OF=image"], "WorkingDir": "/layer"}}).encode()
    layers = [first.getvalue(), second.getvalue()]
    if is_saved:
        saved = [{"Config": "c.json", "RepoTags": ["saved:1"], "Layers": ["0/layer.tar", "1/layer.tar"]}]
        contents = {"manifest.json": json.dumps(saved).encode(), "c.json": config}
        return write_directory(folder, contents | {f"{n}/layer.tar": layer for n, layer in enumerate(layers)})

    def describe(content):
        return {"digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}

    manifest = json.dumps({"config": describe(config), "layers": [describe(one) for one in layers]}).encode()
    index = json.dumps({"schemaVersion": 2, "manifests": [describe(manifest)]}).encode()
    blobs = {f"blobs/sha256/{hashlib.sha256(one).hexdigest()}": one for one in (config, manifest, *layers)}
    return write_directory(folder, {"index.json": index, "oci-layout": b"{}", **blobs})
