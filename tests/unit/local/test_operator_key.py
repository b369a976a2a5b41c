"""The operator's key is minted once for a directory, by the first process that starts."""

from concurrent.futures import ThreadPoolExecutor

from agent_layer.local.operator_key import ensure_api_key, find_api_key, operator_key_path
from agent_layer.settings import Settings


def test_a_gateway_that_starts_again_has_the_key_that_its_clients_have(tmp_path):
    settings = Settings(dir=tmp_path / "new")
    assert find_api_key(settings) is None
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: ensure_api_key(settings).api_key, range(8)))

    assert found == {find_api_key(settings)}
    assert operator_key_path(settings).stat().st_mode & 0o077 == 0


def test_a_key_that_was_given_goes_first_and_is_not_kept(tmp_path):
    settings = Settings(dir=tmp_path, api_key="given")

    assert ensure_api_key(settings).api_key == "given"
    assert not operator_key_path(settings).exists()
