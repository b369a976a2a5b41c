"""Redis and S3 under TLS; an error names a certificate of the wrong authority."""

import socket
import ssl
import subprocess
import threading
from contextlib import suppress

import pytest

from agent_layer.dispatcher import connect
from agent_layer.errors import UnreachableError
from agent_layer.infra.objects.filesystem import open_objects
from agent_layer.infra.processes.addresses import free_port
from agent_layer.infra.redis.client import open_redis
from agent_layer.schema.task import Task


@pytest.fixture
def servers():
    """One Redis is enough here: TLS ends before it."""
    return ("moto", "carried")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Two authorities that know nothing of each other, each with its key beside it: (the server's, a stranger's)."""
    directory = tmp_path_factory.mktemp("tls")
    for name in ("server", "stranger"):
        made = ["-keyout", f"{directory}/{name}.key", "-out", f"{directory}/{name}.pem"]
        subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        try:
            request = ["openssl", "req", "-x509", "-nodes", "-days", "2"]
            subprocess.run([*request, *subject, *made], check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("openssl, which makes the certificates, is not installed")
    return directory / "server.pem", directory / "stranger.pem"


@pytest.fixture
def under_tls(certificates):
    """``under_tls(port)``: a loopback port that accepts TLS and forwards to ``port``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates[0], certificates[0].with_suffix(".key"))
    listeners = []

    def listen(port):
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threading.Thread(target=accept, args=(listener, port), daemon=True).start()
        return listener.getsockname()[1]

    def accept(listener, port):
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=serve, args=(client, port), daemon=True).start()

    def serve(client, port):
        with (
            suppress(OSError),
            client,
            context.wrap_socket(client, server_side=True) as secret,
            socket.create_connection(("127.0.0.1", port)) as server,
        ):
            threading.Thread(target=pump, args=(server, secret), daemon=True).start()
            pump(secret, server)

    yield listen
    for listener in listeners:
        listener.close()


def pump(source, drain):
    with suppress(OSError):
        while content := source.recv(65536):
            drain.sendall(content)
        drain.shutdown(socket.SHUT_WR)


@pytest.fixture
def redis_port(start_redis, under_tls):
    port = free_port()
    start_redis("carried", "--port", str(port), "--bind", "127.0.0.1")
    return under_tls(port)


def test_redis_is_reached_under_tls_with_the_certificate_that_its_url_names(settings, redis_port, certificates):
    url = f"rediss://127.0.0.1:{redis_port}?ssl_ca_certs={certificates[0]}"
    dispatcher = connect(settings.model_copy(update={"redis_url": url}))

    (group_id,) = dispatcher.submit([Task(id="t", run="r", input=1)])

    assert [group.group_id for group in dispatcher.groups()] == [group_id]


def test_a_redis_of_another_authority_is_refused_with_a_sentence(settings, redis_port, certificates):
    for query in ("", f"?ssl_ca_certs={certificates[1]}"):
        url = f"rediss://127.0.0.1:{redis_port}{query}"
        with pytest.raises(UnreachableError, match=r"certificate verify failed.*rediss://…\?ssl_ca_certs=FILE"):
            open_redis(settings.model_copy(update={"redis_url": url}))


@pytest.fixture
def secret_objects(objects_settings, under_tls):
    port = int(objects_settings.s3_endpoint_url.rpartition(":")[2])
    return objects_settings.model_copy(update={"s3_endpoint_url": f"https://127.0.0.1:{under_tls(port)}"})


def test_s3_is_reached_under_tls_with_the_certificate_that_aws_ca_bundle_names(
    secret_objects, certificates, monkeypatch
):
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates[0]))
    objects = open_objects(secret_objects)

    objects.put("key", b"content")

    assert objects.get("key") == b"content"
    assert list(objects.list("")) == ["key"]


def test_an_s3_of_another_authority_is_refused_at_once_with_a_sentence(secret_objects, certificates, monkeypatch):
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates[1]))

    with pytest.raises(UnreachableError, match=r"certificate verify failed.*see AWS_CA_BUNDLE"):
        open_objects(secret_objects).put("key", b"content")
