"""Odd command lines, each answered with one sentence and the exit status that INTERFACE promises."""

import pytest

DIGITS = "9" * 5_000
NO_FILE = "/nowhere/at/all.jsonl"


@pytest.fixture
def read_error(agent_layer):
    """``said(*arguments)``: exit status, and the sentence on stderr, checked to be one."""

    def run(*arguments):
        status, _, err = agent_layer(*arguments)
        assert "Traceback" not in err
        assert len(err.strip().splitlines()) == 1, err
        assert err.startswith("agent-layer: ")
        return status, err

    return run


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["qeury"], "query"),
        (["--nonsense"], "--nonsense"),
        (["query", "--nonsense"], "--nonsense"),
        (["query", "extra"], "extra"),
        (["query", "--step", DIGITS], "expected an index"),
        (["query", "--step", "-1"], "expected an index"),
        (["query", "--step", ""], "expected an index"),
        (["query", "--step", "tool:"], "expected an index"),
        (["query", "--step", "1.5"], "expected an index"),
        (["query", "--limit", DIGITS], "limit"),
        (["query", "--limit", "0"], "limit"),
        (["query", "--limit", "-5"], "limit"),
        (["query", "--limit", "many"], "limit"),
        (["query", "--order", "sideways"], "order"),
        (["query", "--cursor", "junk"], "cursor"),
        (["query", "--cursor", ""], "cursor"),
        (["query", "--reward", "nan"], "reward range"),
        (["query", "--reward", "1..0"], "reward range"),
        (["query", "--reward", ".."], "reward range"),
        (["query", "--reward", DIGITS], "reward range"),
        (["query", "--policy", "7..x"], "policy range"),
        (["query", "--policy", "99"], "policy range"),
        (["query", "--since", "yesterday"], "since"),
        (["query", "--until", "2026-13-01T00:00:00Z"], "until"),
        (["query", "--label", "novalue"], "NAME=VALUE"),
        (["query", "--status", "splendid"], "status"),
        (["query", "--split", "dev"], "split"),
        (["query", "--format", "xml"], "xml"),
        (["query", "--run", "a\udcffb"], "UTF-8"),
        (["show"], "trajectory"),
        (["show", "nothing"], "nothing"),
        (["show", ""], "'agent-layer query'"),
        (["show", "nothing", "--step", DIGITS], "step"),
        (["show", "../../etc/passwd"], "passwd"),
        (["summary", "--by", "colour"], "colour"),
        (["summary", "--success", "much"], "success"),
        (["reward", "nothing", "1"], "nothing"),
        (["reward", "nothing", "good"], "good"),
        (["reward", "nothing", "nan"], "nothing"),
        (["rescore", "nothing:at_all"], "nothing"),
        (["submit", NO_FILE], NO_FILE),
        (["submit", "/"], "/"),
        (["submit", NO_FILE, "--group-size", "few"], "--group-size"),
        (["work"], "TARGET"),
        (["work", "--"], "COMMAND"),
        (["work", "x:y", "--slots", "0"], "slots"),
        (["work", "--", "no-such-program-anywhere"], "no-such-program-anywhere"),
        (["work", "x:y", "--needs", "a b"], "need"),
        (["trace", "--", "no-such-program-anywhere"], "no-such-program-anywhere"),
        (["runs", "pause"], "run"),
        (["runs", "share", "nothing", "--weight", "-1"], "nothing"),
        (["groups", "show", "nothing"], "nothing"),
        (["groups", "cancel"], "expected"),
        (["dead", "retry"], "expected"),
        (["dead", "retry", "nothing"], "nothing"),
        (["rollouts", "--status", "splendid"], "splendid"),
        (["tasks", "--limit", "0"], "limit"),
        (["workers", "drain"], "expected"),
        (["up"], "--model PATH"),
        (["up", "--engine", "junk"], "expected http://HOST:PORT"),
        (["up", "--engine", "http://127.0.0.1:99999"], "expected http://HOST:PORT"),
        (["up", "--engine", "http://[::1"], "expected http://HOST:PORT"),
        (["up", "--engine", "ftp://127.0.0.1"], "expected http://HOST:PORT"),
        (["up", "--engine", "http://127.0.0.1:9"], "is it running"),
        (["up", "--model", NO_FILE], "config.json"),
        (["up", "--port", "99999"], "port"),
        (["serve"], "AGENT_LAYER_VLLM_URLS"),
        (["serve", "--port", "-1"], "port"),
        (["serve", "--host", "999.0.0.1", "--processes", "0"], "processes"),
        (["ingest", "--port", "99999"], "port"),
        (["ingest", "--port", "many"], "port"),
        (["ingest", "--host", "999.0.0.1"], "999.0.0.1"),
        (["engines", "join", "junk"], "expected http://HOST:PORT"),
        (["engines", "join", "http://10.0.0.1:99999"], "expected http://HOST:PORT"),
        (["engines", "drain", "junk"], "junk"),
        (["engines", "leave", ""], "engine"),
        (["store", "import", NO_FILE], NO_FILE),
        (["store", "delete", "nothing"], "nothing"),
        (["store", "expire"], "rule"),
        (["store", "expire", "--older-than", "soon"], "older"),
        (["store", "gc", "--grace", "a while"], "grace"),
        (["store", "export", "jsonl", "/dev/null/x.jsonl"], "/dev/null"),
        (["store", "export", "parquet", "/dev/null/x"], "/dev/null/x"),
        (["store", "export", "verl", "/dev/null/x.parquet"], "/dev/null/x"),
        (["export", "otlp"], "endpoint"),
        (["export", "otlp", "--endpoint", "junk"], "junk"),
        (["--dir", "/dev/null/x", "show", "nothing"], "nothing"),
        (["train", NO_FILE], NO_FILE),
        (["replay", NO_FILE], NO_FILE),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_an_odd_command_line_is_answered_with_one_sentence(read_error, line, expected):
    status, sentence = read_error(*line)

    assert status == 2
    assert expected in sentence


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("AGENT_LAYER_VLLM_URLS", "junk"),
        ("AGENT_LAYER_VLLM_URLS", "http://127.0.0.1:1,localhost:2"),
        ("AGENT_LAYER_VLLM_URLS", "http://[::1"),
        ("AGENT_LAYER_REDIS_URL", "junk"),
        ("AGENT_LAYER_REDIS_URL", "redis://127.0.0.1:99999"),
        ("AGENT_LAYER_REDIS_URL", "redis://127.0.0.1:1?socket_timeout=soon"),
        ("AGENT_LAYER_REDIS_URL", "redis://127.0.0.1:1?nonsense=1"),
        ("AGENT_LAYER_REDIS_URL", "unix://"),
        ("AGENT_LAYER_OBJECTS_URL", "junk"),
        ("AGENT_LAYER_OBJECTS_URL", "s3://"),
        ("AWS_ENDPOINT_URL_S3", "junk"),
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:99999"),
        ("AGENT_LAYER_GATEWAY_URL", "junk"),
        ("AGENT_LAYER_INGEST_URL", "http://"),
        ("AGENT_LAYER_RETRY_SECONDS", "inf"),
        ("AGENT_LAYER_FLUSH_SECONDS", "nan"),
        ("AGENT_LAYER_CONNECT_SECONDS", "-1"),
        ("AGENT_LAYER_LEASE_SECONDS", "1e308"),
        ("AGENT_LAYER_MAX_ATTEMPTS", "-1"),
        ("AGENT_LAYER_NAMESPACE", "../up"),
        ("AGENT_LAYER_INSECURE", "perhaps"),
    ],
)
def test_a_malformed_setting_is_named(read_error, monkeypatch, variable, value):
    status, sentence = _with_variable(read_error, monkeypatch, variable, value)

    assert status == 2
    assert variable in sentence


def _with_variable(read_error, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    return read_error("query")


@pytest.mark.parametrize("command", [["query"], ["submit"], ["store", "check"], ["up"], ["ingest", "--port", "0"]])
@pytest.mark.parametrize("directory", ["/dev/null", "/dev/null/below", "/proc/none", "/sys"])
def test_a_directory_that_takes_no_files_is_named(read_error, monkeypatch, tmp_path, command, directory):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"input": 1}\n')
    monkeypatch.delenv("AGENT_LAYER_REDIS_URL")
    more = {"submit": [tasks], "up": ["--engine", "http://127.0.0.1:9"]}.get(command[0], [])

    status, sentence = read_error("--dir", directory, *command, *more)

    assert status == 2
    assert directory in sentence
