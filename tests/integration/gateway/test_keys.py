"""Who may do what, over which connection; and that no key is kept anywhere."""

import asyncio
import ssl

import aiohttp
import pytest

from agent_layer.errors import BadInputError
from agent_layer.gateway.http.bind import check_exposure, load_tls
from agent_layer.settings import Settings

SENT = [
    *(("x-api-key", "{}"), ("x-goog-api-key", "{}")),
    *(("Authorization", "Bearer {}"), ("authorization", "bearer {}")),
]


@pytest.mark.parametrize(("header", "value"), SENT)
async def test_a_key_may_come_as_each_makers_clients_send_it(gateway, header, value):
    opened = await gateway.open()
    headers = {header: value.format(opened["api_key"])}

    async with gateway.session.get(f"{opened['base_url']}/models", headers=headers) as reply:
        assert reply.status == 200


@pytest.mark.parametrize("key", ["", " ", "\u00e4\u00f6", "a" * 4000, "rk-" + "x" * 32, "\udcff"])
async def test_any_wrong_key_is_refused_and_counted(gateway, key):
    opened = await gateway.open()
    url = f"{opened['base_url']}/models"

    for name, address in (
        ("x-api-key", url),
        ("authorization", url),
        ("x-api-key", f"{gateway.url}/r/gone-0/v1/models"),
    ):
        value = (key if name == "x-api-key" else f"Bearer {key}").encode("utf-8", "surrogateescape")
        assert await _find_status(gateway.url, address, name.encode(), value) == 401

    assert await gateway.figure('refused_keys_total{reason="unknown"}') == 3


async def test_a_former_operator_key_is_taken_while_it_is_named(settings, run_gateway):
    mine = settings.model_copy(update={"api_key": "operator-key", "former_api_keys": "older-key, oldest-key"})

    async with run_gateway(mine) as gateway:
        statuses = [
            (await gateway.post("/rollouts", {"task_id": "t"}, key=key))[0]
            for key in ("operator-key", "older-key", "oldest-key", "older", "older-key, oldest-key")
        ]

    assert statuses == [200, 200, 200, 401, 401]


async def test_a_body_or_header_that_is_too_long_is_refused(settings, run_gateway):
    mine = settings.model_copy(update={"api_key": "operator-key", "max_body_bytes": 2000})

    async with run_gateway(mine) as gateway:
        opened = await gateway.open()
        status, answer = await gateway.chat(opened, "x" * 3000)
        assert (status, "2000" in answer["error"]["message"]) == (413, True)
        assert await _find_status(gateway.url, f"{opened['base_url']}/models", b"x-api-key", b"k" * 20_000) == 400
        assert (await gateway.chat(opened, "hello"))[0] == 200


async def test_figures_need_the_operators_key_from_other_machines(gateway):
    operator = {"Authorization": "Bearer operator-key"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))) as other:
        statuses = [(await other.get(f"{gateway.url}/metrics", headers=headers)).status for headers in ({}, operator)]

    assert statuses == [401, 200]


async def test_figures_ask_for_their_own_key_where_it_is_set(settings, run_gateway):
    mine = settings.model_copy(update={"api_key": "operator-key", "metrics_key": "scraper-key"})
    async with run_gateway(mine) as gateway:
        opened = await gateway.open()
        keys = (None, "", "scraper", opened["api_key"], "scraper-key", "operator-key")
        headers = [{} if key is None else {"Authorization": f"Bearer {key}"} for key in keys]
        statuses = [(await gateway.session.get(f"{gateway.url}/metrics", headers=one)).status for one in headers]
        models = await gateway.session.get(f"{opened['base_url']}/models", headers=headers[4])

    assert statuses == [401, 401, 401, 401, 200, 200]
    assert models.status == 401


async def test_figures_are_shown_on_the_gateways_own_machine(gateway):
    async with gateway.session.get(f"{gateway.url}/metrics") as reply:
        status, text = reply.status, await reply.text()

    assert status == 200
    assert "# TYPE agent_layer_calls_started_total counter\nagent_layer_calls_started_total 0\n" in text


async def test_what_happens_is_counted(gateway):
    opened, other = await gateway.open(), await gateway.open()
    await gateway.chat(opened, "hello")
    gateway.engine.script = lambda _: ""
    await gateway.chat(opened, "hello")
    await gateway.post(f"/rollouts/{other['rollout_id']}/close", {"attempt": 0})

    figures = {
        name: await gateway.figure(name)
        for name in (
            "calls_started_total",
            'calls_ended_total{status="ok"}',
            "calls_in_flight",
            "rollouts_opened_total",
            "rollouts_closed_total",
            "rollouts_open",
        )
    }

    assert list(figures.values()) == [2, 2, 0, 2, 1, 1]


@pytest.mark.parametrize(
    ("host", "changes", "is_taken"),
    [
        ("127.0.0.1", {}, True),
        ("0.0.0.0", {}, False),
        ("10.1.2.3", {}, False),
        ("::", {}, False),
        ("0.0.0.0", {"insecure": True}, True),
        ("0.0.0.0", {"tls_cert": "gateway.pem"}, True),
    ],
)
def test_others_may_connect_through_tls_only_unless_it_is_said(host, changes, is_taken):
    settings = Settings(**changes)

    if is_taken:
        check_exposure(settings, host)
    else:
        with pytest.raises(BadInputError, match="--insecure"):
            check_exposure(settings, host)


def test_a_certificate_that_is_none_is_said_in_one_sentence(tmp_path):
    (tmp_path / "gateway.pem").write_text("no certificate")

    with pytest.raises(BadInputError, match="AGENT_LAYER_TLS_CERT"):
        load_tls(Settings(tls_cert=tmp_path / "gateway.pem"))


async def test_rollouts_work_over_tls(settings, run_gateway, certificate):
    cert, key = certificate
    mine = settings.model_copy(update={"api_key": "operator-key", "tls_cert": cert, "tls_key": key})

    async with run_gateway(mine, tls=load_tls(mine)) as gateway:
        trust = ssl.create_default_context(cafile=str(cert))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as gateway.session:
            opened = await gateway.open()
            assert opened["base_url"].startswith("https://127.0.0.1:")
            assert (await gateway.chat(opened, "hello"))[0] == 200


async def _find_status(base, url, name, value):
    """Send a header byte for byte; clients would refuse to."""
    host, port = base.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    path = url.removeprefix(base).encode()
    writer.write(b"GET %b HTTP/1.1\r\nHost: gateway\r\n%b: %b\r\nConnection: close\r\n\r\n" % (path, name, value))
    status = int((await reader.readline()).split()[1])
    writer.close()
    await writer.wait_closed()
    return status
