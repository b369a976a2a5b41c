"""Versions of agents and models: what tells two rounds apart that have the same names."""

from collections.abc import Sequence
from hashlib import blake2b
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from agent_layer.errors import BadInputError
from agent_layer.schema import content_hash
from envs.commands import hash_template
from envs.evaluation.rounds import EvaluatedAgent
from envs.harnesses import PREFIX, find_harness

_MODEL_FILES = (
    *("config.json", "generation_config.json", "adapter_config.json", "*processor_config.json", "params.json"),
    *("*tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "tekken.json"),
    *("chat_template.json", "*.jinja", "*.model", "*.safetensors", "*.bin", "*.index.json"),
)
"""What transformers and vLLM read of a model's directory; people and programs leave other files there."""
_SAMPLED_BYTES = 1 << 20
"""Read at both ends of each file of weights: hashing all of a large model would take minutes."""


def describe_target(target: str, options: Sequence[str] = ()) -> EvaluatedAgent:
    """Describe an agent by the file of its module, which is not imported; the worker reports what is wrong inside.

    Raises: BadInputError: there is no such module, which a worker would report only after everything has started.
    """
    if target.startswith(PREFIX):
        version = find_harness(target.removeprefix(PREFIX)).version
        return EvaluatedAgent(target=target, command_options=list(options), version=version)
    if ":" in target:
        module = target.partition(":")[0]
    else:
        module = next((one.module for one in entry_points(group="agent_layer.agents") if one.name == target), None)
    try:
        spec = find_spec(module) if module else None
    except (ImportError, ValueError):
        spec = None
    if module is not None and spec is None:
        raise BadInputError(
            f"agent {target!r}: there is no module {module!r}; check the name and the directory that you start in"
        )
    file = Path(spec.origin) if spec and spec.origin else None
    version = content_hash(file.read_bytes()) if file is not None and file.is_file() else None
    return EvaluatedAgent(target=target, version=version)


def describe_command(command: Sequence[str], options: Sequence[str] = ()) -> EvaluatedAgent:
    """Describe a command by the files that it names, and by the templates of its attempts.

    Args:
        command: program and arguments.
        options: of the worker, for the command.

    Raises: BadInputError: there is no such template.
    """
    files = [Path(word) for word in command if "/" in word or "." in word]
    contents = [file.read_bytes() for file in files if file.is_file()]
    templates = [option.partition("=")[2] for option in options if option.startswith(("--workdir=", "--home="))]
    contents += [hash_template(template).encode() for template in templates]
    return EvaluatedAgent(
        target=None,
        command=list(command),
        command_options=list(options),
        version=content_hash(b"\0".join(contents)) if contents else None,
    )


def fingerprint_weights(directory: Path) -> str:
    """Hash a model's configuration and weights: name and size of each file, and the bytes at its ends."""
    digest = blake2b(digest_size=16)
    for file in sorted(directory.iterdir()):
        if any(map(file.match, _MODEL_FILES)) and file.is_file():
            size = file.stat().st_size
            digest.update(f"{file.name}\n{size}\n".encode())
            with file.open("rb") as opened:
                digest.update(opened.read(_SAMPLED_BYTES))
                if size > _SAMPLED_BYTES:
                    opened.seek(max(_SAMPLED_BYTES, size - _SAMPLED_BYTES))
                    digest.update(opened.read())
    return digest.hexdigest()
