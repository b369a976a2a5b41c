"""A program of a rollout calls the rollout's model, whatever endpoints and tokens its user's environment names."""

import dataclasses
import os

import anthropic
import openai
import pytest

import tracer
from tracer.credentials import clear_secrets
from tracer.propagation import enter_environment
from tracer.testing import capture

OWN = "the-users-own"
ELSEWHERE = "https://elsewhere.example"
MESSAGES = [{"role": "user", "content": "hi"}]
USERS = {
    "ANTHROPIC_API_KEY": OWN,
    "ANTHROPIC_AUTH_TOKEN": OWN,
    "ANTHROPIC_BASE_URL": ELSEWHERE,
    "ANTHROPIC_API_BASE": ELSEWHERE,
    "ANTHROPIC_CUSTOM_HEADERS": f"X-Mine: yes\nauthorization: Bearer {OWN}\nX-Api-Key : {OWN}",
    "ANTHROPIC_FOUNDRY_API_KEY": OWN,
    "ANTHROPIC_FOUNDRY_BASE_URL": ELSEWHERE,
    "AZURE_API_BASE": ELSEWHERE,
    "AZURE_API_KEY": OWN,
    "AZURE_AD_TOKEN": OWN,
    "AZURE_OPENAI_AD_TOKEN": OWN,
    "AZURE_OPENAI_API_KEY": OWN,
    "AZURE_OPENAI_ENDPOINT": ELSEWHERE,
    "CLAUDE_CODE_OAUTH_TOKEN": OWN,
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "CLAUDE_CODE_USE_VERTEX": "1",
    "CODEX_API_KEY": OWN,
    "LITELLM_PROXY_API_BASE": ELSEWHERE,
    "LITELLM_PROXY_API_KEY": OWN,
    "OPENAI_ADMIN_KEY": OWN,
    "OPENAI_API_BASE": ELSEWHERE,
    "OPENAI_API_KEY": OWN,
    "OPENAI_API_TYPE": "azure",
    "OPENAI_BASE_URL": ELSEWHERE,
    "OPENAI_CUSTOM_HEADERS": f"X-Mine: yes\nAuthorization: Bearer {OWN}",
}
"""What a user's shell may hold."""


@pytest.fixture
def rollout():
    with capture() as captured, tracer.rollout(task="t"):
        yield tracer.Rollout(
            trajectory_id="r-0",
            rollout_id="r",
            attempt=0,
            run="r",
            sink=captured,
            base_url="http://127.0.0.1:9/r/r-0/v1",
            api_key="rk-ours",
        )


def sent_by_sdks(monkeypatch, variables):
    """Return address and headers of the requests that SDKs build from an environment alone."""
    for name in os.environ:
        if name.startswith(("OPENAI_", "ANTHROPIC_", "AZURE_", "CLAUDE_", "CODEX_")):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    clients = [openai.OpenAI(), anthropic.Anthropic()]
    if "AZURE_OPENAI_ENDPOINT" in variables:
        clients.append(openai.AzureOpenAI(api_version="2024-10-21"))
    for client in clients:
        body = {"model": "m", "messages": MESSAGES, "max_tokens": 1}
        url = "/v1/messages" if isinstance(client, anthropic.Anthropic) else "/chat/completions"
        options = type(client)._prepare_options(client, _options(client, url, body))
        yield client._build_request(options)


def _options(client, url, body):
    models = anthropic if isinstance(client, anthropic.Anthropic) else openai
    return models._models.FinalRequestOptions(method="post", url=url, json_data=body)


def test_every_sdk_calls_the_rollouts_model_with_its_key_and_sends_no_token_of_the_user(rollout, monkeypatch):
    entered = enter_environment({"PATH": "/bin", **USERS}, rollout)

    requests = list(sent_by_sdks(monkeypatch, entered))

    assert len(requests) == 3
    for request in requests:
        assert str(request.url).startswith("http://127.0.0.1:9/r/r-0/")
        assert "rk-ours" in str(request.headers.raw)
        assert OWN not in str(request.headers.raw)
        assert request.headers.get("x-mine", "yes") == "yes"


def test_nothing_of_the_users_credentials_is_left(rollout):
    entered = enter_environment({"PATH": "/bin", **USERS}, rollout)

    assert {name for name, value in entered.items() if OWN in value or ELSEWHERE in value} == set()
    assert not [name for name in entered if name.startswith("CLAUDE_CODE_USE_")]
    assert entered["ANTHROPIC_CUSTOM_HEADERS"] == "X-Mine: yes"


def test_a_variable_that_nobody_set_is_not_invented_since_it_would_choose_a_provider(rollout):
    entered = enter_environment({"PATH": "/bin"}, rollout)

    assert not [name for name in entered if name.startswith(("AZURE_", "LITELLM_", "CODEX_"))]
    assert "ANTHROPIC_AUTH_TOKEN" not in entered


def test_inject_takes_out_what_leads_elsewhere(rollout):
    with tracer.enter_rollout(rollout):
        environment = tracer.inject({"PATH": "/bin", **USERS})

    assert OWN not in environment.values()
    assert "CLAUDE_CODE_USE_BEDROCK" not in environment


def test_without_a_gateway_the_program_keeps_its_own_model(rollout):
    as_text = dataclasses.replace(rollout, base_url=None, api_key=None)

    assert enter_environment(USERS, as_text).items() >= USERS.items()


SECRETS = [
    "GH_TOKEN",
    "HF_TOKEN",
    "HUGGINGFACEHUB_API_TOKEN",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "WANDB_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_SESSION_TOKEN",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "SSH_AUTH_SOCK",
    "PGPASSWORD",
    "MYSQL_PWD",
    "GIT_ASKPASS",
    "SLACK_WEBHOOK_URL",
    "SENTRY_DSN",
    "NPM_TOKEN",
    "npm_config__authToken",
    "ARM_CLIENT_SECRET",
    "GITHUB_PAT",
    "CI_JOB_JWT",
    "DEPLOY_KEYS",
    "TWINE_PASSWORD",
    "SIGNING_PASSPHRASE",
    "AZURE_STORAGE_SAS_TOKEN",
    "DOCKER_AUTH_CONFIG",
    "NEWRELIC_LICENSEKEY",
    "AZURE_STORAGE_CONNECTION_STRING",
]
KEPT = [
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TERM",
    "PWD",
    "OLDPWD",
    "SHELL",
    "USER",
    "TMPDIR",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "PYTHONHASHSEED",
    "CUDA_VISIBLE_DEVICES",
    "TOKENIZERS_PARALLELISM",
    "MAX_TOKENS",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "HF_HOME",
    "XDG_SESSION_ID",
    "DESKTOP_SESSION",
    "PYTHON_KEYRING_BACKEND",
    "KEYBOARD_LAYOUT",
    "NUM_PASSES",
    "AUTHOR",
    "GIT_AUTHOR_NAME",
]


def test_secrets_are_told_by_their_names_and_by_passwords_in_addresses():
    addresses = {"https_proxy": "http://me:pass@proxy:80", "DATABASE_URL": "postgres://u:p@h/db"}
    addresses |= {"UV_INDEX_URL": "https://ghp_1@registry.example/simple"}  # a token in the place of the user
    plain = {
        "http_proxy": "http://proxy:3128",
        "SITE": "https://a.example/x@y:z@",
        "REMOTE": "git@host:repo",
        "DB": "postgres://me@h/db",
    }
    known = {"AZURE_API_KEY": OWN, "ANTHROPIC_CUSTOM_HEADERS": "a: b"}  # these become the rollout's

    left = clear_secrets(dict.fromkeys([*SECRETS, *KEPT], "x") | addresses | plain | known)

    assert sorted(left) == sorted([*KEPT, *plain, *known])
