"""``view export`` as it is typed: which trajectories, whose rights, what is never in it, and what Ctrl-C leaves."""

import json

import pytest
from typer.testing import CliRunner

from agent_layer.cli.main import build
from agent_layer.cli.store.acl import acl_rules
from agent_layer.errors import BadInputError
from agent_layer.view import Selection, write_site
from agent_layer.view.site import writer

from ...stored import damage
from ...viewing import SECRET


@pytest.fixture
def export(viewed, tmp_path, monkeypatch):
    for name, value in viewed.settings.environment().items():
        monkeypatch.setenv(name, value)

    def run(*arguments, directory=tmp_path / "site"):
        ended = CliRunner().invoke(build(), ["view", "export", str(directory), *arguments], catch_exceptions=True)
        if ended.exception and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        assert ended.exit_code in (0, 130), ended.output
        return ended

    return run


def test_what_matches_is_written_and_a_limit_is_named(export, tmp_path):
    ended = export("--run", "r0", "--limit", "2", "--reward", "..5")

    assert f"{(tmp_path / 'site' / 'index.html').as_uri()}  2 trajectories" in ended.output
    assert "not all: 12 match, the first 2 of order newest are in it" in ended.output
    assert json.loads((tmp_path / "site" / "export.json").read_bytes())["num_trajectories"] == 2
    shell = (tmp_path / "site" / "index.html").read_text()
    assert "agent-layer query --run r0 --reward ..5 --order newest --limit 2" in shell
    assert "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'self';" in shell
    assert "not all" not in export("--run", "r0", "--limit", "12").output


def test_the_grading_of_a_task_is_never_in_an_export(export, tmp_path):
    export()
    texts = [path.read_text() for path in (tmp_path / "site" / "data").iterdir()]

    assert len(texts) > 24
    assert any("what?" in text for text in texts)
    assert [text for text in texts if SECRET in text or "grading" in text] == []


def test_only_an_operator_exports(export, viewed, redis, tmp_path, monkeypatch):
    for role in ("operator", "reader", "worker", "trainer"):
        redis.execute_command("ACL", "SETUSER", role, *acl_rules(role, viewed.store.keys, 6.2), ">word")
    url = viewed.settings.redis_url
    monkeypatch.setenv("AGENT_LAYER_REDIS_URL", _as_user(url, "operator"))
    export()
    for role in ("reader", "worker", "trainer"):
        monkeypatch.setenv("AGENT_LAYER_REDIS_URL", _as_user(url, role))
        with pytest.raises(BadInputError, match="expected the operator's user of Redis"):
            export(directory=tmp_path / role)
        assert not (tmp_path / role).exists()


def test_ctrl_c_leaves_the_earlier_export(export, tmp_path, monkeypatch):
    export("--run", "r0")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "show_forks", interrupted)
    assert export("--run", "r1").exit_code == 130
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--run", "nothing"], "found none; remove a filter"),
        (["--order", "size"], "expected one of newest"),
        (["--demo", "--bucket", "file:///x"], "found both"),
    ],
)
def test_what_cannot_be_exported_leaves_nothing(export, tmp_path, arguments, why):
    with pytest.raises(BadInputError, match=why):
        export(*arguments)
    assert not (tmp_path / "site").exists()


def test_a_damaged_trajectory_is_left_out_and_its_siblings_are_exported(fresh, tmp_path, monkeypatch):
    for name, value in fresh.settings.environment().items():
        monkeypatch.setenv(name, value)
    damage(fresh.store, "g0.1-0")

    ended = CliRunner().invoke(build(), ["view", "export", str(tmp_path / "site"), "--run", "r0"])

    assert (ended.exit_code, "left out: part of g0.1-0" in ended.output) == (1, True)
    assert json.loads((tmp_path / "site" / "export.json").read_bytes())["num_trajectories"] == 11
    alone = Selection(rows=[fresh.store.row("g0.1-0")], num_matching=1, command="", python="", at=0.0)
    with pytest.raises(BadInputError, match="expected a trajectory that can be read, found 1 that cannot"):
        write_site(
            fresh.source,
            tmp_path / "site",
            alone,
            on_progress=lambda *_: None,
            on_left_out=lambda _: None,
        )
    assert json.loads((tmp_path / "site" / "export.json").read_bytes())["num_trajectories"] == 11


def _as_user(url, name):
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{name}:word@{rest}"
