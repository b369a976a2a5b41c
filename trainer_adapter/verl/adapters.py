"""LoRA (Hu et al. 2021): which layers have an adapter, and the weights of the model that it makes.

PEFT keeps three tensors for an adapted layer: the frozen ``base_layer.weight``, ``lora_A`` and ``lora_B``. The model
that they make has ``weight = base + alpha / rank · B A``. It is computed here, and nothing is merged in place: PEFT's
merge and its reversal leave rounding errors in the frozen weights, and veRL's merged weights are bfloat16.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from peft import LoraConfig as PeftConfig, PeftModel
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import AutoConfig
from verl.utils.model import get_hf_auto_model_class

from agent_layer.errors import BadInputError
from trainer_adapter.config import LoraConfig

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# veRL and much of transformers carry no types.

ADAPTER_CONFIG = "adapter_config.json"
"""PEFT's name."""
_ROOT = "base_model.model."
_BASE = ".base_layer."
_FACTORS = ".lora_A.default.", ".lora_B.default."


class WeightParts(NamedTuple):
    """Names of the tensors that make one weight of the model."""

    base: str
    a: str | None
    """[rank, num_inputs]; None, and so is ``b``, where there is no adapter."""
    b: str | None
    """[num_outputs, rank]"""


def find_parts(names: Iterable[str]) -> dict[str, WeightParts]:
    """Return the parts of each weight by its name in the model, from PEFT's names."""
    known = set(names)
    parts: dict[str, WeightParts] = {}
    for name in names:
        if not is_factor(name):
            a, b = (name.replace(_BASE, factor) for factor in _FACTORS)
            has_adapter = _BASE in name and a in known
            model_name = name.removeprefix(_ROOT).replace(_BASE, ".")
            parts[model_name] = WeightParts(name, a if has_adapter else None, b if has_adapter else None)
    return parts


def is_factor(name: str) -> bool:
    """Whether a tensor belongs to an adapter."""
    return any(factor in name for factor in _FACTORS)


def file_name(name: str) -> str:
    """Return the name of an adapter's tensor in PEFT's files."""
    return name.replace(".default.", ".")


def add_adapter(base: Tensor, a: Tensor, b: Tensor, config: PeftConfig) -> Tensor:
    """Return the weight of an adapted layer, in the type of ``base``."""
    return base + config.lora_alpha / config.r * (b @ a).to(base.dtype)


def merged_weights(module: nn.Module, adapter: PeftConfig) -> Iterator[tuple[str, Tensor]]:
    """Yield (Hugging Face name, whole tensor) of each parameter, adapters added; must be consumed completely."""
    stored = module.state_dict()
    for name, (base, a, b) in find_parts(stored).items():
        weight = whole_tensor(stored[base])
        if a and b:
            weight = add_adapter(weight, whole_tensor(stored[a]), whole_tensor(stored[b]), adapter)
        yield name, weight


def whole_tensor(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor that processes share; all must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def find_adapter(module: nn.Module, model: Path) -> PeftConfig | None:
    """Return the configuration of a module's adapter, which names the model in this directory; None: it has none."""
    found = module.peft_config["default"] if isinstance(module, PeftModel) else None
    if not isinstance(found, PeftConfig):
        return None
    found.base_model_name_or_path = str(model.absolute())
    return found


def read_adapter(directory: Path) -> PeftConfig | None:
    """Return the configuration of the adapter that is stored in a directory; None: there is none."""
    if not (directory / ADAPTER_CONFIG).is_file():
        return None
    found = PeftConfig.from_pretrained(str(directory))
    return found if isinstance(found, PeftConfig) else None


def check_targets(model: Path, config: LoraConfig) -> None:
    """Raise BadInputError: one of the target modules is no linear layer of the model, or it has none.

    PEFT ignores a name that fits nothing. The layer behind the last hidden state is none of them: many models share its
    weights with the embedding.
    """
    found = AutoConfig.from_pretrained(model)
    with torch.device("meta"):
        sketch = get_hf_auto_model_class(found).from_config(found)  # pyright: ignore[reportOptionalMemberAccess]
    last = sketch.get_output_embeddings()
    layers = {name for name, part in sketch.named_modules() if isinstance(part, nn.Linear) and part is not last}
    wanted = [] if config.target_modules == "all-linear" else config.target_modules
    unknown = [name for name in wanted if not any(f".{layer}".endswith(f".{name}") for layer in layers)]
    if unknown or not layers:
        known = sorted({layer.rpartition(".")[2] for layer in layers})
        raise BadInputError(
            f"lora.target_modules: expected linear layers of {model} ({', '.join(known) or 'it has none'}), found"
            f" {', '.join(unknown) or config.target_modules}; correct the names, or leave 'lora' out"
        )


def check_same(directory: Path, adapter: PeftConfig | None) -> None:
    """Raise BadInputError: the checkpoint in a directory has another adapter than the trained model."""
    stored = read_adapter(directory)
    if _describe(stored) != _describe(adapter):
        raise BadInputError(
            f"checkpoint {directory}: expected {_describe(adapter)}, as the configuration says, found"
            f" {_describe(stored)}; restore the section 'lora' of the run, or choose another run"
        )


def _describe(adapter: PeftConfig | None) -> str:
    if adapter is None:
        return "no adapter"
    targets = adapter.target_modules
    layers = targets if isinstance(targets, str) else ", ".join(sorted(targets or ()))
    return f"an adapter of rank {adapter.r} and alpha {adapter.lora_alpha} on {layers}"
