"""Our declarations. Each version and switch was tried against the gateway; ``harnesses check`` tries them again."""

from pathlib import Path
from typing import Final

import msgspec

from agent_layer.schema import ROLE_HEADER
from envs.harnesses.harness import Harness, SideCall, ToolShape

_AUX: Final = {ROLE_HEADER: "aux"}
_NO_COLOUR: Final = {"NO_COLOR": "1", "TERM": "dumb", "CI": "1"}

_CLAUDE_CODE = Harness(
    name="claude-code",
    package="@anthropic-ai/claude-code",
    version="2.1.197",
    installer="npm",
    program="claude",
    runs_scripts=True,
    dialect="messages",
    arguments=["-p", "$prompt", "--dangerously-skip-permissions", "--model", "$model"],
    resume_arguments=["-p", "$prompt", "--continue", "--dangerously-skip-permissions", "--model", "$model"],
    environment={
        **_NO_COLOUR,
        "ANTHROPIC_BASE_URL": "$root_url",
        "ANTHROPIC_API_KEY": "$api_key",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "$model",
        "ANTHROPIC_DEFAULT_SONNET_MODEL": "$model",
        "ANTHROPIC_DEFAULT_OPUS_MODEL": "$model",
        "IS_SANDBOX": "1",
        "ANTHROPIC_SMALL_FAST_MODEL": "aux",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "$output_tokens",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "$context_tokens",
        "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "$context_tokens",
    },
    side_calls=[SideCall(what="title", mark="model", pattern="Generate a concise, sentence-case title")],
    switched_off=[
        "telemetry and updates",
        "git instructions, whose state changes the system prompt when a conversation continues",
    ],
    shell=ToolShape(name="Bash", arguments={"command": "$command", "description": "as the script says"}),
    sub_agent=ToolShape(
        name="Agent",
        arguments={"description": "a part", "prompt": "$prompt", "subagent_type": "general-purpose"},
    ),
    names_agents=True,
    compaction="create a detailed summary of",
    compact_tokens=38_000,
    findings=["not_applied:context_management", "rearranged:system", "side_call:model"],
)

_SDK_PROGRAM: Final = "claude_sdk.py"
_CLAUDE_SDK = msgspec.structs.replace(
    _CLAUDE_CODE,
    name="claude-agent-sdk",
    package="claude-agent-sdk",
    version="0.2.189",
    installer="pypi",
    program="python",
    runs_scripts=False,
    start_arguments=[
        *("-I", "-c"),
        (
            "import subprocess, claude_agent_sdk as sdk; from pathlib import Path;"
            " subprocess.run([Path(sdk.__file__).parent / '_bundled' / 'claude', '--version'], check=True)"
        ),
    ],
    arguments=["-I", f"$home/{_SDK_PROGRAM}", "$model", "$prompt"],
    resume_arguments=["-I", f"$home/{_SDK_PROGRAM}", "--continue", "$model", "$prompt"],
    environment={**_CLAUDE_CODE.environment, "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1"},
    side_calls=[SideCall(what="title", mark="model", pattern="You are naming a coding session")],
    files={_SDK_PROGRAM: (Path(__file__).parent / _SDK_PROGRAM).read_text(encoding="utf-8")},
)

_CODEX = Harness(
    name="codex",
    package="@openai/codex",
    version="0.171.0",
    installer="npm",
    program="codex",
    dialect="responses",
    arguments=[
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "-o",
        "$home/answer.txt",
        "$prompt",
    ],
    resume_arguments=[
        "exec",
        "resume",
        "--last",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "-o",
        "$home/answer.txt",
        "$prompt",
    ],
    environment={**_NO_COLOUR, "AGENT_LAYER_MODEL_KEY": "$api_key"},
    files={
        ".codex/config.toml": (
            'model = "$model"\nmodel_provider = "gateway"\nmodel_context_window = $context_tokens\n'
            "check_for_update_on_startup = false\n\n"
            '[model_providers.gateway]\nname = "gateway"\nbase_url = "$base_url"\nenv_key = "AGENT_LAYER_MODEL_KEY"\n'
            'wire_api = "responses"\nsupports_websockets = true\n\n'
            "[analytics]\nenabled = false\n"
        )
    },
    answer_command="cat $home/answer.txt",
    switched_off=["updates, analytics"],
    shell=ToolShape(name="exec_command", arguments={"cmd": "$command"}),
    sub_agent=ToolShape(name="multi_agent_v1__spawn_agent", arguments={"message": "$prompt"}),
    waits=ToolShape(name="multi_agent_v1__wait_agent", arguments={"targets": ["$agent"], "timeout_ms": 600_000}),
    agent_id=r'"agent_id": ?"([^"]+)"',
    names_agents=True,
    compaction="CONTEXT CHECKPOINT COMPACTION",
    compact_tokens=12_000,
    findings=["not_applied:tools.namespace", "not_applied:tools.web_search", "rearranged:system"],
)

_OPENCODE_MODEL = {
    "name": "policy",
    "tool_call": True,
    "limit": {"context": "$context_tokens", "output": "$output_tokens"},
}
_OPENCODE = Harness(
    name="opencode",
    package="opencode-ai",
    version="1.18.33",
    installer="npm",
    program="opencode",
    runs_scripts=True,
    dialect="chat",
    arguments=["run", "--auto", "$prompt"],
    resume_arguments=["run", "--auto", "--continue", "$prompt"],
    environment={
        **_NO_COLOUR,
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER": "1",
    },
    files={
        ".config/opencode/opencode.json": {
            "model": "gateway/$model",
            "small_model": "side/$model",
            "autoupdate": False,
            "share": "disabled",
            "provider": {
                "gateway": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": "$base_url", "apiKey": "$api_key"},
                    "models": {"$model": _OPENCODE_MODEL},
                },
                "side": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": "$base_url", "apiKey": "$api_key", "headers": _AUX},
                    "models": {"$model": _OPENCODE_MODEL},
                },
            },
        }
    },
    side_calls=[SideCall(what="title", mark="header", pattern="You are a title generator")],
    switched_off=["updates, sharing, the list of models", "the watcher of files, which hangs in a sandbox"],
    shell=ToolShape(name="bash", arguments={"command": "$command", "description": "as the script says"}),
    sub_agent=ToolShape(
        name="task", arguments={"description": "a part", "prompt": "$prompt", "subagent_type": "general"}
    ),
    compaction="context summarization agent",
    compact_tokens=18_000,
    findings=["restored:tool_calls"],
)

_QWEN_CODE = Harness(
    name="qwen-code",
    package="@qwen-code/qwen-code",
    version="0.15.10",
    installer="npm",
    program="qwen",
    dialect="chat",
    arguments=["--yolo", "--auth-type", "openai", "--model", "$model", "--prompt", "$prompt"],
    resume_arguments=["--yolo", "--auth-type", "openai", "--model", "$model", "--continue", "--prompt", "$prompt"],
    environment={**_NO_COLOUR, "OPENAI_BASE_URL": "$base_url", "OPENAI_API_KEY": "$api_key", "OPENAI_MODEL": "$model"},
    files={
        ".qwen/settings.json": {
            "general": {"disableAutoUpdate": True},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "tools": {"shell": {"enableInteractiveShell": False}},
            "model": {"generationConfig": {"contextWindowSize": "$context_tokens"}},
        }
    },
    switched_off=["updates, statistics", "terminals of its shell, which a sandbox does not have"],
    shell=ToolShape(name="run_shell_command", arguments={"command": "$command", "is_background": False}),
    sub_agent=ToolShape(
        name="agent", arguments={"description": "a part", "prompt": "$prompt", "subagent_type": "general-purpose"}
    ),
    compaction="component that summarizes internal chat history",
    compact_tokens=24_000,
    findings=["restored:tool_calls"],
)

_PI = Harness(
    name="pi",
    package="@mariozechner/pi-coding-agent",
    version="0.73.1",
    installer="npm",
    program="pi",
    dialect="chat",
    arguments=["--provider", "gateway", "--model", "$model", "--offline", "-p", "$prompt"],
    resume_arguments=["--provider", "gateway", "--model", "$model", "--offline", "--continue", "-p", "$prompt"],
    environment={**_NO_COLOUR, "PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
    files={
        ".pi/agent/models.json": {
            "providers": {
                "gateway": {
                    "baseUrl": "$base_url",
                    "api": "openai-completions",
                    "apiKey": "$api_key",
                    "compat": {"supportsDeveloperRole": False, "supportsReasoningEffort": False},
                    "models": [
                        {"id": "$model", "contextWindow": "$context_tokens", "maxTokens": "$output_tokens"},
                    ],
                }
            }
        },
        ".pi/agent/settings.json": {
            "compaction": {"enabled": True, "reserveTokens": "$output_tokens", "keepRecentTokens": "$output_tokens"}
        },
    },
    switched_off=["updates, telemetry"],
    shell=ToolShape(name="bash", arguments={"command": "$command"}),
    compaction="context summarization assistant",
    compact_tokens=18_000,
    findings=["restored:tool_calls"],
)

_MINI = Harness(
    name="mini-swe-agent",
    package="mini-swe-agent",
    version="2.4.6",
    installer="pypi",
    program="mini",
    start_arguments=["--help"],
    dialect="chat",
    arguments=["-m", "openai/$model", "-t", "$prompt", "-y", "--exit-immediately", "-l", "0", "-o", "$home/run.json"],
    environment={
        **_NO_COLOUR,
        "OPENAI_API_BASE": "$base_url",
        "OPENAI_API_KEY": "$api_key",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_SILENT_STARTUP": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    },
    answer_command=(
        '$folder/bin/python -c \'import json, sys; print(json.load(open(sys.argv[1]))["info"]["submission"])\''
        " $home/run.json"
    ),
    shell=ToolShape(name="bash", arguments={"command": "$command"}),
    finish=ToolShape(name="bash", arguments={"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo done"}),
)

_AIDER = Harness(
    name="aider",
    package="aider-chat",
    version="0.86.2",
    installer="pypi",
    program="aider",
    dialect="chat",
    arguments=["--yes-always", "--message", "$prompt"],
    resume_arguments=["--yes-always", "--restore-chat-history", "--message", "$prompt"],
    environment={
        **_NO_COLOUR,
        "OPENAI_API_BASE": "$base_url",
        "OPENAI_API_KEY": "$api_key",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    },
    files={
        ".aider.conf.yml": (
            "model: openai/$model\nweak-model: openai/aux\nmodel-settings-file: $home/settings.yml\n"
            "analytics-disable: true\ncheck-update: false\nshow-model-warnings: false\nshow-release-notes: false\n"
            "pretty: false\nfancy-input: false\ngitignore: false\ndetect-urls: false\n"
        ),
        "settings.yml": (
            "- name: openai/$model\n  edit_format: diff\n  use_temperature: false\n  weak_model_name: openai/aux\n"
            "- name: openai/aux\n  use_temperature: false\n  extra_params:\n    extra_headers:\n"
            f"      {ROLE_HEADER}: aux\n"
        ),
    },
    side_calls=[
        SideCall(what="commit message", mark="header", pattern="[Cc]ommit message"),
        SideCall(what="summary of its history", mark="header", pattern="Briefly.*summarize this partial conversation"),
    ],
    switched_off=["analytics, updates, warnings about unknown models, links found in texts"],
    edit="notes.txt\n```\n<<<<<<< SEARCH\n=======\n$command\n>>>>>>> REPLACE\n```",
)

_COPILOT = Harness(
    name="copilot",
    package="@github/copilot",
    version="1.0.102",
    installer="npm",
    program="copilot",
    dialect="chat",
    arguments=["-p", "$prompt", "--allow-all", "--silent", "--no-color"],
    resume_arguments=["--continue", "-p", "$prompt", "--allow-all", "--silent", "--no-color"],
    environment={
        **_NO_COLOUR,
        "COPILOT_PROVIDER_BASE_URL": "$base_url",
        "COPILOT_PROVIDER_API_KEY": "$api_key",
        "COPILOT_MODEL": "$model",
        "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "$context_tokens",
        "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": "$output_tokens",
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_OFFLINE": "true",
    },
    switched_off=["updates, telemetry"],
    shell=ToolShape(name="bash", arguments={"command": "$command", "description": "as the script says"}),
    sub_agent=ToolShape(
        name="task",
        arguments={"description": "a part", "prompt": "$prompt", "agent_type": "general-purpose", "name": "part"},
    ),
    findings=["neutralised:top_p", "restored:tool_calls"],
)

_CONTINUE = Harness(
    name="continue",
    package="@continuedev/cli",
    version="1.5.47",
    installer="npm",
    program="cn",
    dialect="chat",
    arguments=["--config", "$home/config.yaml", "--auto", "-p", "$prompt"],
    resume_arguments=["--config", "$home/config.yaml", "--auto", "--resume", "-p", "$prompt"],
    environment={**_NO_COLOUR, "CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_METRICS_ENABLED": "0"},
    files={
        "config.yaml": {
            "name": "gateway",
            "version": "1.0.0",
            "schema": "v1",
            "models": [
                {
                    "name": "policy",
                    "provider": "openai",
                    "model": "$model",
                    "apiBase": "$base_url",
                    "apiKey": "$api_key",
                    "roles": ["chat", "edit", "apply"],
                    "capabilities": ["tool_use"],
                    "contextLength": "$context_tokens",
                    "defaultCompletionOptions": {
                        "contextLength": "$context_tokens",
                        "maxTokens": "$output_tokens",
                    },
                }
            ],
        }
    },
    switched_off=["telemetry"],
    shell=ToolShape(name="Bash", arguments={"command": "$command"}),
    findings=["restored:tool_calls"],
)

_CLINE = Harness(
    name="cline",
    package="cline",
    version="3.0.65",
    installer="npm",
    program="cline",
    runs_scripts=True,
    dialect="chat",
    arguments=[
        *("--data-dir", "$home/.cline/data"),  # without this, a daemon that all attempts share runs them
        *("--auto-approve", "true", "-P", "openai-compatible", "-m", "$model", "$prompt"),
    ],
    environment={**_NO_COLOUR, "CLINE_LOG_ENABLED": "0"},
    files={
        ".cline/data/settings/providers.json": {
            "version": 1,
            "lastUsedProvider": "openai-compatible",
            "providers": {
                "openai-compatible": {
                    "settings": {
                        "provider": "openai-compatible",
                        "apiKey": "$api_key",
                        "model": "$model",
                        "baseUrl": "$base_url",
                    },
                    "updatedAt": "2026-11-28T00:00:00.000Z",
                    "tokenSource": "manual",
                }
            },
        }
    },
    switched_off=["the hub, a daemon"],
    shell=ToolShape(name="run_commands", arguments={"commands": ["$command"]}),
    sub_agent=ToolShape(name="spawn_agent", arguments={"systemPrompt": "You take a part.", "task": "$prompt"}),
    findings=["restored:tool_calls"],
)

_GEMINI = Harness(
    name="gemini",
    package="@google/gemini-cli",
    version="0.61.0",
    installer="npm",
    program="gemini",
    dialect="google",
    arguments=["--yolo", "--skip-trust", "--model", "$model", "--prompt", "$prompt"],
    resume_arguments=["--yolo", "--skip-trust", "--model", "$model", "--resume", "latest", "--prompt", "$prompt"],
    environment={
        **_NO_COLOUR,
        "GOOGLE_GEMINI_BASE_URL": "$root_url",
        "GEMINI_API_KEY": "$api_key",
        "GEMINI_MODEL": "$model",
    },
    files={
        ".gemini/settings.json": {
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "model": {"disableLoopDetection": True},
        }
    },
    switched_off=["updates, statistics", "the question to the model whether it loops"],
    shell=ToolShape(name="run_shell_command", arguments={"command": "$command", "description": "as the script says"}),
    findings=["neutralised:top_k", "neutralised:top_p"],
)

_VIBE = Harness(
    name="vibe",
    package="mistral-vibe",
    version="3.0.2",
    installer="pypi",
    program="vibe",
    python="3.12",
    dialect="chat",
    arguments=["--trust", "--auto-approve", "-p", "$prompt"],
    resume_arguments=["--trust", "--auto-approve", "--continue", "-p", "$prompt"],
    environment={**_NO_COLOUR, "AGENT_LAYER_MODEL_KEY": "$api_key"},
    files={
        ".vibe/config.toml": (
            'active_model = "policy"\nenable_telemetry = false\nenable_auto_update = false\n\n'
            '[[providers]]\nname = "gateway"\napi_base = "$base_url"\napi_key_env_var = "AGENT_LAYER_MODEL_KEY"\n'
            'api_style = "openai"\nbackend = "generic"\nreasoning_field_name = "reasoning"\n\n'
            '[[models]]\nname = "$model"\nprovider = "gateway"\nalias = "policy"\ntemperature = 1.0\n'
            "auto_compact_threshold = $context_tokens\n"
        )
    },
    switched_off=["updates, telemetry"],
    shell=ToolShape(name="bash", arguments={"command": "$command"}),
    compaction="CONTEXT CHECKPOINT COMPACTION",
    compact_tokens=12_000,
)

HARNESSES: Final = {
    one.name: one
    for one in (
        *(_CLAUDE_CODE, _CLAUDE_SDK, _CODEX, _OPENCODE, _QWEN_CODE, _PI, _COPILOT, _CLINE, _CONTINUE, _GEMINI),
        *(_MINI, _AIDER, _VIBE),
    )
}
"""Harnesses by their names."""
