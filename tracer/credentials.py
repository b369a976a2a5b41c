"""Variables that lead SDKs and coding agents elsewhere than to a rollout, or make them send a token of the user's own.

A program of a rollout inherits its starter's environment. Many of its variables name another endpoint of the same APIs,
or a key that its SDK prefers to ours; a call that follows them is not captured, or is refused. Others are secrets of
the user, which a program that runs what a model writes has no need of.
"""

import re
from collections.abc import Mapping
from typing import Final

_KEYS: Final = frozenset(
    {"ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_FOUNDRY_API_KEY", "AZURE_API_KEY", "AZURE_AD_TOKEN", "AZURE_OPENAI_API_KEY"}
    | {"AZURE_OPENAI_AD_TOKEN", "CODEX_API_KEY", "GOOGLE_API_KEY", "LITELLM_PROXY_API_KEY", "OPENAI_ADMIN_KEY"}
)
_ADDRESSES: Final = frozenset(
    {"ANTHROPIC_API_BASE", "ANTHROPIC_FOUNDRY_BASE_URL", "AZURE_API_BASE", "AZURE_OPENAI_ENDPOINT"}
    | {"LITELLM_PROXY_API_BASE"}
)
"""Addresses for SDKs of OpenAI, Anthropic and LiteLLM, which all find the model without ``/v1``."""
_REMOVED: Final = frozenset(
    {"ANTHROPIC_FOUNDRY_RESOURCE", "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_TYPE"}
    | {"GOOGLE_GENAI_USE_VERTEXAI"}
)
_SWITCHES: Final = "CLAUDE_CODE_USE_"
"""Beginning of the variables that send Claude Code to another cloud."""
_HEADERS: Final = frozenset({"ANTHROPIC_CUSTOM_HEADERS", "OPENAI_CUSTOM_HEADERS"})
_KEY_HEADERS: Final = frozenset({"authorization", "x-api-key", "api-key"})
_SECRET: Final = re.compile(
    r"(KEYS?|TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|WEBHOOK(_URL)?|CONNECTION_STRING)(_|$)"
    r"|(^|_)(AUTH|ASKPASS|COOKIE|DSN|JWT|PASS|PAT|SAS)(_|$)|_PWD$",
    re.IGNORECASE,
)
"""Names of secrets, and of what leads to them (SSH_AUTH_SOCK, GOOGLE_APPLICATION_CREDENTIALS)."""
_WITH_PASSWORD: Final = re.compile(r"://[^/@\s]*:[^/@\s]+@|https?://[^/@\s]+@", re.IGNORECASE)
"""Address with a password in it, or with a token in the place of the user."""


def clear_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without secrets, as their names or values show them.

    Keys of model APIs that ``replace_credentials`` replaces stay.
    """
    return {
        name: value
        for name, value in variables.items()
        if name in _KEYS or not (_SECRET.search(name) or _WITH_PASSWORD.search(value))
    }


def replace_credentials(variables: Mapping[str, str], base_url: str, api_key: str) -> dict[str, str]:
    """Return an environment whose credentials and addresses of model APIs are those of a rollout.

    Only what is there is replaced: some SDKs choose their provider by the variables that are set.
    """
    root = base_url.removesuffix("/v1")
    replaced = dict[str, str]()
    for name, value in variables.items():
        if name in _REMOVED or name.startswith(_SWITCHES):
            continue
        if name in _HEADERS:
            replaced[name] = "\n".join(line for line in value.splitlines() if not _is_key(line))
        else:
            replaced[name] = api_key if name in _KEYS else root if name in _ADDRESSES else value
    return replaced


def _is_key(line: str) -> bool:  # kept: names the rule
    return line.partition(":")[0].strip().lower() in _KEY_HEADERS
