"""What of a model's directory decides whether a run can be: numbers of ``config.json``, whole files of weights."""

from pathlib import Path

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import UNREADABLE, JsonObject, as_json_object
from trainer_adapter.config import TrainConfig

__all__ = ["check_model", "check_sequence_parallel", "read_context_length"]


def check_model(model: Path) -> None:
    """Raise BadInputError for a directory without a model, or with weights that are not whole; it reads no tensor."""
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415  # a base install has none

    if not (model / "config.json").is_file():
        raise BadInputError(
            f"model {model}: expected a directory with config.json, weights and a tokenizer, found none; download the"
            " model, or correct 'model' in the configuration"
        )
    for path in sorted(model.glob("*.safetensors")):
        try:
            with safe_open(path, framework="numpy"):
                pass
        except (OSError, SafetensorError) as error:
            raise BadInputError(
                f"model {model}: expected whole weights in {path.name}, found: {error}; copy or download it again"
            ) from error


def read_context_length(config: TrainConfig) -> int:
    """Return the longest sequence of an engine.

    Raises: BadInputError: neither this configuration nor that of the model says.
    """
    if config.cluster and config.cluster.max_model_len:
        return config.cluster.max_model_len
    longest = _read_sizes(config.model).get("max_position_embeddings")
    if isinstance(longest, int):
        return longest
    raise BadInputError(
        f"model {config.model}: expected max_position_embeddings in its config.json; set cluster.max_model_len"
    )


def check_sequence_parallel(config: TrainConfig, num_ranks: int) -> None:
    """Raise BadInputError unless processes and attention heads can be divided as ``optimizer.sequence_parallel`` says.

    Args:
        config: of the run.
        num_ranks: processes that share the model.
    """
    parts = config.optimizer.sequence_parallel
    if parts == 1:
        return
    sizes = _read_sizes(config.model)
    heads = sizes.get("num_attention_heads")
    keys = sizes.get("num_key_value_heads") or heads
    remedy = "choose another sequence_parallel"
    if num_ranks % parts:
        found, remedy = f"{num_ranks} processes that share the model", f"{remedy}, or share it among {parts} processes"
    elif not (isinstance(heads, int) and isinstance(keys, int)) or heads % parts:
        found = f"{heads} attention heads in {config.model}"
    elif keys % parts and parts % keys:
        found = f"{keys} key heads in {config.model}"
    else:
        return
    raise BadInputError(
        f"optimizer.sequence_parallel {parts}: expected a number that divides processes and heads, found {found};"
        f" {remedy}"
    )


def _read_sizes(model: Path) -> JsonObject:
    try:
        written = msgspec.json.decode((model / "config.json").read_bytes(), type=JsonObject)
    except (OSError, *UNREADABLE) as error:
        raise BadInputError(f"model {model}: expected a readable config.json, found {error}; correct it") from error
    return as_json_object(written.get("text_config", written))
