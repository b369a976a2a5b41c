"""The cluster's manifests: valid by the schemas of Kubernetes and systemd, and true about this project."""

import configparser
import json
import shutil
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from agent_layer.infra.processes.pulse import write_pulse
from agent_layer.settings import Settings
from envs.placement.worker_handle import max_shutdown_seconds

from ...waiting import run

CLUSTER = Path(__file__).parents[3] / "examples" / "cluster"
UNIT = CLUSTER / "agent-layer-worker@.service"
MANIFESTS = [
    document
    for path in sorted((CLUSTER / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]
NEWEST = "1.37"
OLDEST = "1.29"

OTHERS_VARIABLES = {"AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "HOME"}


def named(manifest):
    return f"{manifest['kind']}-{manifest['metadata']['name']}"


def the(kind, name):
    (found,) = [one for one in MANIFESTS if named(one) == f"{kind}-agent-layer{name}"]
    return found


WORKER, GATEWAY = the("Deployment", "-worker"), the("StatefulSet", "-gateway")
PODS = [pytest.param(one["spec"]["template"]["spec"], id=named(one)) for one in (WORKER, GATEWAY)]
DOCUMENTED = the("ConfigMap", "")["data"]


def find_container(pod):
    (container,) = pod["containers"]
    return container


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("manifest", MANIFESTS, ids=named)
def test_a_manifest_is_what_kubernetes_takes(manifest, version):
    kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda spec: spec.update(terminationGracePeriodSecond=700),
        lambda spec: spec.update(terminationGracePeriodSeconds="soon"),
        lambda spec: find_container(spec).pop("name"),
        lambda spec: find_container(spec)["livenessProbe"].update(exec="true"),
    ],
)
def test_a_broken_manifest_is_found(spoil):
    broken = deepcopy(WORKER)
    spoil(broken["spec"]["template"]["spec"])

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, NEWEST, strict=True)


def test_a_pod_is_not_killed_before_its_worker_has_drained():
    pod = WORKER["spec"]["template"]["spec"]
    settings = Settings(work_drain_seconds=float(DOCUMENTED["AGENT_LAYER_WORK_DRAIN_SECONDS"]))

    assert settings.work_drain_seconds > 60
    assert pod["terminationGracePeriodSeconds"] > max_shutdown_seconds(settings)


def test_no_worker_goes_before_its_successor_is_seen():
    assert WORKER["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert find_container(WORKER["spec"]["template"]["spec"])["readinessProbe"]


@pytest.mark.parametrize("pod", PODS)
def test_pods_can_do_as_little_as_possible(pod):
    container = find_container(pod)

    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"]["memory"]
    assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("pod", PODS)
def test_secrets_come_from_a_secret(pod):
    secret = {one["name"] for one in find_container(pod)["env"] if "valueFrom" in one}
    plain = {one["name"] for one in find_container(pod)["env"] if "value" in one} | set(DOCUMENTED)

    assert secret == {"AGENT_LAYER_REDIS_URL", "AGENT_LAYER_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    assert not [name for name in plain if "KEY" in name or "SECRET" in name]


@pytest.mark.parametrize("pod", PODS)
def test_every_variable_is_a_setting(pod):
    names = {one["name"] for one in find_container(pod)["env"]} | set(DOCUMENTED)

    assert unknown(names) == set()


def unknown(names):
    return {
        name
        for name in names - OTHERS_VARIABLES
        if name.removeprefix("AGENT_LAYER_").lower() not in Settings.model_fields
    }


@pytest.mark.parametrize("pod", PODS)
def test_what_is_written_has_a_place_that_may_be_written(pod):
    container = find_container(pod)
    mounted = [one["mountPath"] for one in container["volumeMounts"]]
    names = ("AGENT_LAYER_DIR", "AGENT_LAYER_PULSE_FILE", "HOME")
    written = [one["value"] for one in container["env"] if one["name"] in names]

    assert [path for path in written if not any(Path(path).is_relative_to(place) for place in mounted)] == []


@pytest.mark.parametrize("pod", PODS)
def test_every_option_exists(pod, agent_layer):
    program, command, *arguments = find_container(pod)["args"]
    _, shown, _ = agent_layer(command, "--help")

    assert program == "agent-layer"
    assert [one for one in arguments if one.startswith("--") and one not in shown] == []


def test_every_gateway_is_named_to_workers():
    spec = GATEWAY["spec"]
    hosts = [f"http://agent-layer-gateway-{n}.{spec['serviceName']}:8790" for n in range(spec["replicas"])]

    assert DOCUMENTED["AGENT_LAYER_GATEWAY_URL"].split(",") == hosts
    assert the("Service", "-gateway")["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize("kind", ["NetworkPolicy", "PodDisruptionBudget"])
@pytest.mark.parametrize("of", [WORKER, GATEWAY], ids=named)
def test_policies_select_the_pods_that_they_name(kind, of):
    policy = the(kind, of["metadata"]["name"].removeprefix("agent-layer"))["spec"]
    selector = policy["podSelector" if kind == "NetworkPolicy" else "selector"]

    assert selector["matchLabels"] == of["spec"]["template"]["metadata"]["labels"]


def test_workers_reach_names_gateways_redis_and_objects_and_nobody_reaches_them():
    policy = the("NetworkPolicy", "-worker")["spec"]

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == []
    assert [[port["port"] for port in one["ports"]] for one in policy["egress"]] == [[53, 53], [8790], [6379], [8333]]
    assert all(to.keys() <= {"namespaceSelector", "podSelector"} for one in policy["egress"] for to in one["to"])


def probe(name, file):
    """Run a worker's probe as the pod would, on another file."""
    container = find_container(WORKER["spec"]["template"]["spec"])
    (path,) = [one["value"] for one in container["env"] if one["name"] == "AGENT_LAYER_PULSE_FILE"]
    python, *command = container[name]["exec"]["command"]
    assert (python, path in command) == ("python", True)
    return subprocess.run(
        [sys.executable, *[str(file) if one == path else one for one in command]], check=False, capture_output=True
    ).returncode


PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_fails_before_the_first_heartbeat_and_not_after_it(tmp_path, name):
    assert probe(name, tmp_path / "pulse") == 1

    write_pulse(tmp_path / "pulse", "w", is_draining=False)

    assert probe(name, tmp_path / "pulse") == 0


def test_a_draining_worker_is_alive_and_not_ready(tmp_path):
    write_pulse(tmp_path / "pulse", "w", is_draining=True)

    assert [probe(name, tmp_path / "pulse") for name in PROBES] == [0, 1, 0]


@pytest.mark.parametrize(
    ("silent_seconds", "found"), [(20, [0, 0, 0]), (45, [0, 1, 0]), (90, [1, 1, 0]), (700, [1, 1, 1])]
)
def test_a_worker_without_answers_becomes_unready_first_and_is_started_anew_last(tmp_path, silent_seconds, found):
    file = tmp_path / "pulse"
    write_pulse(file, "w", is_draining=False)
    message = json.loads(file.read_text())
    file.write_text(json.dumps(message | {"answered_at": message["answered_at"] - silent_seconds}))

    assert [probe(name, file) for name in PROBES] == found


class Unit(configparser.RawConfigParser):
    """A systemd unit; of directives that may be repeated the last one counts here."""

    def optionxform(self, optionstr):
        return optionstr


@pytest.fixture
def unit():
    unit = Unit(strict=False, comment_prefixes=("#",))
    unit.read(UNIT)
    return unit


def test_systemd_finds_nothing_to_complain_about(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    assert complaints(UNIT.read_text(), tmp_path) == ""
    assert "KillMod" in complaints(UNIT.read_text().replace("KillMode=", "KillMod="), tmp_path)


def complaints(text, directory):
    path = directory / "agent-layer-worker@one.service"
    path.write_text(text.replace("/opt/agent-layer/bin/agent-layer", sys.executable))
    return run(["systemd-analyze", "verify", path]).stderr


def test_systemd_does_not_kill_before_workers_have_drained(unit):
    variables = dict(one.split("=", 1) for one in unit["Service"]["Environment"].split())
    settings = Settings(work_drain_seconds=float(variables["AGENT_LAYER_WORK_DRAIN_SECONDS"]))

    assert unknown(set(variables)) == set()
    assert float(unit["Service"]["TimeoutStopSec"]) > max_shutdown_seconds(settings)


def test_systemd_tells_the_supervisor_alone_and_reloads_by_its_signal(unit):
    service = unit["Service"]

    assert (service["KillMode"], service["KillSignal"]) == ("mixed", "SIGTERM")
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert "--on processes" in service["ExecStart"]
    assert (service["Restart"], service["NoNewPrivileges"]) == ("always", "yes")


def test_sandboxes_may_still_make_namespaces(unit):
    forbidding = {"RestrictNamespaces", "SystemCallFilter", "ProtectKernelTunables", "ProtectProc", "PrivateUsers"}

    assert forbidding & set(unit["Service"]) == set()
