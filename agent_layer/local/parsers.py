"""Parsers of vLLM for a model: which turns its words into tool calls, and which separates its reasoning.

vLLM answers a request with tools only when it was started with a parser of the format in which the model writes calls.
The chat template shows that format: it renders earlier calls as the model wrote them. So a family is known by marks in
its template, and by ``model_type`` where several families share marks or the tokenizer has no template. Names are those
of vLLM 0.24 to 0.31 (https://docs.vllm.ai/en/latest/features/tool_calling.html).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec
import typer

from agent_layer.errors import BadInputError
from agent_layer.schema import UNREADABLE

ToolParser: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|auto|none",
        help="vLLM's parser of tool calls (--tool-call-parser). auto, the default: that of the model's family.",
    ),
]
"""Option of the commands that start vLLM; None is auto."""
ReasoningParser: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|auto|none",
        help="vLLM's parser of reasoning (--reasoning-parser). auto: that of the model's family; none: it stays text.",
    ),
]
"""Option of the commands that start vLLM; None is auto."""


_PARSER_ON_REQUEST: Final = "deepseek_v3"
"""Parser that knows its marks only in a request that thinks. vLLM 0.31 looks for them at its start, finds none, and
refuses every request with a budget of thoughts, as Anthropic's ``thinking`` has it."""
_THINK_MARKS: Final = {"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}


@dataclass(frozen=True, kw_only=True)
class Parsers:
    """What a vLLM server parses of its answers."""

    tool: str | None
    reasoning: str | None
    warning: str | None = None
    """Why requests with tools will be refused; None: they will not."""

    def __str__(self) -> str:
        """Return a sentence for who starts the server."""
        if self.warning is not None:
            return f"warning: {self.warning}"
        return f"tool parser: {self.tool or 'none'}, reasoning parser: {self.reasoning or 'none'}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the options of ``vllm serve``."""
        return tuple(_write_flag(name, value) for name, value in self.engine_arguments.items())

    @property
    def engine_arguments(self) -> Mapping[str, object]:
        """Return them as keywords, as veRL passes them on."""
        found: dict[str, object] = {}
        if self.tool is not None:
            found |= {"enable_auto_tool_choice": True, "tool_call_parser": self.tool}
        if self.reasoning is not None:
            found["reasoning_parser"] = self.reasoning
        if self.reasoning == _PARSER_ON_REQUEST:
            found["reasoning_config"] = dict(_THINK_MARKS)
        return found


def _write_flag(name: str, value: object) -> str:
    option = f"--{name.replace('_', '-')}"
    if value is True:
        return option
    return f"{option}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"


class _Family(msgspec.Struct, frozen=True):
    """Models that write alike."""

    parser: str
    marks: tuple[str, ...] = ()
    """Regular expressions; each is found in the chat template."""
    models: str | None = None
    """Regular expression of ``model_type`` in config.json; None: any."""

    def has(self, template: str, model_type: str) -> bool:
        """Whether a model belongs to it."""
        is_named = self.models is None or re.fullmatch(self.models, model_type) is not None
        return is_named and all(re.search(mark, template) for mark in self.marks)


_TOOLS: Final = (  # the first that has a model counts
    _Family("openai", (r"<\|channel\|>",), "gpt_oss"),
    _Family("deepseek_v31", ("<｜tool▁calls▁begin｜>", r"<｜tool▁call▁begin｜>'\s*\+\s*tool\['function'\]\['name'\]")),
    _Family("deepseek_v3", ("<｜tool▁calls▁begin｜>",)),
    _Family("deepseek_v32", ("<｜DSML｜",), "deepseek_v32"),
    _Family("step3", ("<｜tool_calls_begin｜>",)),
    _Family("kimi_k2", (r"<\|tool_calls_section_begin\|>",)),
    _Family("minimax_m2", ("<minimax:tool_call>",)),
    _Family("seed_oss", ("<seed:tool_call>",)),
    _Family("longcat", ("<longcat_tool_call>",)),
    _Family("dots", ("<dots_function_call>",)),
    _Family("muse_glimmer", ("<atem:function_calls>",)),
    _Family("apertus", (r"<\|tools_prefix\|>",)),
    _Family("mistral", (r"\[TOOL_CALLS\]",)),
    _Family("glm45", ("<arg_key>", r"\[gMASK\]")),
    _Family("step3p5", ("<function=",), "step3p5"),
    _Family("qwen3_coder", ("<function=",)),
    _Family("lfm2", (r"<\|tool_(call|list)_start\|>",)),
    _Family("functiongemma", ("<start_function_call>",)),
    _Family("gemma4", (r"<\|tool_call>",)),
    _Family("cohere_command3", (r"<\|START_ACTION\|>",)),
    _Family("phi4_mini_json", (r"<\|tool\|>",), "phi3|phi4mm"),
    _Family("granite4", ("<tool_call>",), "granitemoehybrid"),
    _Family("granite", (r"<\|tool_call\|>",)),
    _Family("hunyuan_a13b", ("<tool_calls>",), "hunyuan.*"),
    _Family("jamba", ("<tool_calls>",), "jamba"),
    _Family("internlm", (r"<\|action_start\|>",)),
    _Family("olmo3", ("<function_calls>",)),
    _Family("llama4_pythonic", ("ipython",), "llama4.*"),
    _Family("ernie45", ("<tool_call>",), "ernie4_5.*"),
    _Family("hermes", ("<tool_call>",)),
    _Family("llama3_json", ("ipython", r"<\|eot_id\|>", "tools")),
    _Family("mistral", (), "(mis|minis|pixs|vox)tral.*"),  # its own tokenizer has no template
    _Family("openai", (), "gpt_oss"),
    _Family("deepseek_v32", (), "deepseek_v32"),
)

_OFF_AT_FIRST: Final = (
    r"enable_thinking\s*\|\s*default\(\s*false|(?:set\s+(?:enable_)?thinking\s*=\s*false)"
    r"|if\s+(?:enable_)?thinking\s+is\s+defined\s+and\s+(?:enable_)?thinking\s+(?:and|%|-%|is\s+true)"
)
"""A template that lets a model think only when a request asks for it."""

_REASONING: Final = (
    _Family("openai_gptoss", (r"<\|channel\|>",), "gpt_oss"),
    _Family("mistral", (r"\[THINK\]",)),
    _Family("seed_oss", ("<seed:think>",)),
    _Family("cohere_command3", (r"<\|START_THINKING\|>",)),
    _Family("kimi_k2", (r"<\|tool_calls_section_begin\|>", "<think>")),
    _Family("minimax_m2", ("<minimax:tool_call>", "<think>")),
    _Family("glm45", ("<arg_key>", r"\[gMASK\]", "<think>")),
    _Family("step3p5", ("<think>",), "step3p5"),
    _Family("step3", ("<think>",), "step3.*"),
    _Family("gemma4", (r"<\|channel>", r"<\|tool_call>")),
    _Family("muse_glimmer", ("<atem:function_calls>",)),
    _Family("ernie45", ("<think>",), "ernie4_5.*"),
    _Family("hunyuan_a13b", ("<think>",), "hunyuan.*"),
    _Family("olmo3", ("<think>",), "olmo3.*"),
    _Family("nemotron_v3", ("<think>", "enable_thinking"), "nemotron_h"),
    _Family("granite", ("Here is my thought process",)),
    _Family("deepseek_v3", ("<think>", _OFF_AT_FIRST)),
    _Family("deepseek_r1", ("<｜Assistant｜><think>",)),
    _Family("qwen3", ("<think>", "enable_thinking")),
    _Family("qwen3", (r"assistant\\n<think>",), "qwen3.*"),
    _Family("deepseek_r1", (r"assistant\\n<think>",)),
)

_UNKNOWN: Final = (
    "model {model}: found no parser for the tool calls that its chat template writes, so requests with tools are"
    " refused; choose one with --tool-parser NAME ({known})"
)
_NO_TEMPLATE: Final = (
    "model {model}: its chat template shows the model no tools, so requests with tools are refused; add a template with"
    " tools, or choose a parser with --tool-parser NAME"
)


def choose_parsers(model: Path, tool: str = "auto", reasoning: str = "auto") -> Parsers:
    """Choose the parsers with which vLLM serves a model.

    Args:
        model: directory with config.json, tokenizer and chat template, in Hugging Face's form.
        tool: a name of vLLM's, 'auto' for that of the model's family, or 'none'.
        reasoning: the same.

    Raises: BadInputError: the installed vLLM has no parser of this name.
    """
    template, model_type = read_chat_template(model), _read_model_type(model)
    path = model / "tokenizer.json"
    words = path.read_text(errors="replace") if path.is_file() else ""
    tools, reasonings = _list_parsers("tool_parsers"), _list_parsers("reasoning")
    chosen = _choose(tool, "--tool-parser", tools, _find(_TOOLS, template, model_type))
    thinking = _find(_REASONING, template, model_type)
    if "<think>" in template and words and '"<think>"' not in words:
        thinking = None  # the parser reads token ids, and the tokenizer has none of it
    warning = None
    if chosen is None and tool == "auto":
        known = ", ".join(sorted(tools)) or "'vllm serve --help' lists them"
        sentence = _UNKNOWN if re.search(r"\btools\b", template) else _NO_TEMPLATE
        warning = sentence.format(model=model, known=known)
    chosen_reasoning = _choose(reasoning, "--reasoning-parser", reasonings, thinking)
    return Parsers(tool=chosen, reasoning=chosen_reasoning, warning=warning)


def _find(families: Sequence[_Family], template: str, model_type: str) -> str | None:
    return next((family.parser for family in families if family.has(template, model_type)), None)


def _choose(word: str, option: str, installed: frozenset[str], found: str | None) -> str | None:
    """Return the parser that is asked for, or the one that was found, as far as the installed vLLM has it."""
    if word == "none":
        return None
    if word == "auto":
        return found if not installed or found in installed else None
    if installed and word not in installed:
        raise BadInputError(
            f"{option} {word}: expected auto, none or a parser of the installed vLLM, found no such parser; choose one"
            f" of {', '.join(sorted(installed))}"
        )
    return word


def _list_parsers(package: str) -> frozenset[str]:
    """Return the names in a registry of the installed vLLM, read as text: its import takes seconds. Empty: unknown."""
    if (spec := find_spec("vllm")) is None or not spec.submodule_search_locations:
        return frozenset()
    registry = Path(spec.submodule_search_locations[0]) / package / "__init__.py"
    text = registry.read_text() if registry.is_file() else ""
    return frozenset(re.findall(r'^    "([\w.-]+)": \(', text, re.MULTILINE))


class _NamedTemplate(msgspec.Struct):
    name: str = ""
    template: str = ""


_Config = TypeVar("_Config", bound=msgspec.Struct)


class _TokenizerConfig(msgspec.Struct):
    chat_template: str | list[_NamedTemplate] | None = None


class _ModelConfig(msgspec.Struct):
    model_type: str = ""


def read_chat_template(model: Path) -> str:
    """Return the chat template of a model directory, all of them if it has several; empty: it has none."""
    return "\n".join(_templates(model))


def _templates(model: Path) -> Iterator[str]:
    for path in (model / "chat_template.jinja", *sorted(model.glob("additional_chat_templates/*.jinja"))):
        if path.is_file():
            yield path.read_text(errors="replace")
    for name in ("chat_template.json", "tokenizer_config.json"):
        found = _read(model / name, _TokenizerConfig).chat_template
        yield from [found] if isinstance(found, str) else [one.template for one in found or []]


def _read_model_type(model: Path) -> str:
    return _read(model / "config.json", _ModelConfig).model_type


def _read(path: Path, kind: type[_Config]) -> _Config:
    """Return what a file says; what it does not say, or not as expected, is the default."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, *UNREADABLE):
        return kind()
