"""Memory that a trainer needs, by arithmetic over a model's config.json.

States stay for the whole run: weights, gradients, both moments of Adam, a reference. Beside them is either an update,
with the activations of one micro-batch, or the writing of a policy version. Engines have memory of their own.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import UNREADABLE
from trainer_adapter.algorithms import resolve_algorithm
from trainer_adapter.config import LoraConfig, TrainConfig
from trainer_adapter.verl_keys import CHUNK_TOKENS

_FLOAT = 4
"""Bytes of float32."""
_LOGIT_COPIES, _ENTROPY_COPIES = 3, 3
"""Logits at the row's temperature, their log-softmax and its gradient, in float32 whatever the precision; for an
entropy bonus the probabilities and two gradients more."""
_EXPERTS = {"qwen2_moe", "qwen3_moe", "mixtral"}
"""Kinds of models whose experts the arithmetic covers."""


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a decoder with gated MLPs, such as Llama, Mistral or Qwen, by the names of Hugging Face."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None = None
    """None: as many as attention heads."""
    head_dim: int | None = None
    """None: hidden_size / num_attention_heads."""
    tie_word_embeddings: bool = False
    model_type: str = ""
    attention_bias: bool = False
    num_experts: int | None = None
    num_local_experts: int | None = None
    """Mixtral's name of ``num_experts``."""
    num_experts_per_tok: int = 1
    moe_intermediate_size: int | None = None
    """None: experts are as wide as ``intermediate_size``."""
    shared_expert_intermediate_size: int = 0
    """Width of the expert that every token passes through; 0: there is none."""
    decoder_sparse_step: int = 1
    """Every n-th layer has experts."""
    mlp_only_layers: list[int] = []
    """Layers without experts."""

    @property
    def query_size(self) -> int:
        """Width of the queries of all heads."""
        return self.num_attention_heads * (self.head_dim or self.hidden_size // self.num_attention_heads)

    @property
    def key_size(self) -> int:
        """Width of the keys of all heads, and of the values."""
        return self.query_size // self.num_attention_heads * (self.num_key_value_heads or self.num_attention_heads)

    @property
    def num_embeddings(self) -> int:
        """Parameters of the embeddings and of the layer that computes logits."""
        return self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)

    @property
    def experts(self) -> int:
        """Experts of a layer that has some; 0: no layer has."""
        return self.num_experts or self.num_local_experts or 0

    @property
    def expert_size(self) -> int:
        """Width of one expert."""
        return self.moe_intermediate_size or self.intermediate_size

    @property
    def num_sparse(self) -> int:
        """Layers with experts."""
        places = range(self.num_hidden_layers) if self.experts else ()
        return sum(one not in self.mlp_only_layers and (one + 1) % self.decoder_sparse_step == 0 for one in places)

    @property
    def mlp_width(self) -> int:
        """Values of MLPs that a token passes through in the widest layer."""
        dense = self.intermediate_size if self.num_sparse < self.num_hidden_layers else 0
        sparse = self.num_experts_per_tok * self.expert_size + self.shared_expert_intermediate_size
        return max(dense, sparse if self.num_sparse else 0)

    @property
    def attention_parameters(self) -> int:
        """Parameters of one layer, without its MLP."""
        matrices = 2 * self.hidden_size * self.query_size + 2 * self.hidden_size * self.key_size
        norms = 2 * self.hidden_size
        if self.model_type in {"qwen3", "qwen3_moe"}:  # norms of queries and keys
            norms += 2 * (self.query_size // self.num_attention_heads)
        biases = 0
        if self.model_type in {"qwen2", "qwen2_moe"}:  # whatever its configuration says
            biases = self.query_size + 2 * self.key_size
        elif self.attention_bias:
            biases = self.query_size + 2 * self.key_size + self.hidden_size
        return matrices + norms + biases

    @property
    def dense_parameters(self) -> int:
        """Parameters of the MLP of a layer without experts."""
        return 3 * self.hidden_size * self.intermediate_size

    @property
    def sparse_parameters(self) -> int:
        """Parameters of the experts of a layer, of its router, and of the expert that all tokens share."""
        shared = self.shared_expert_intermediate_size
        each = 3 * self.hidden_size * self.expert_size + self.hidden_size
        return self.experts * each + (3 * self.hidden_size * shared + self.hidden_size if shared else 0)

    @property
    def layer_parameters(self) -> int:
        """Parameters of the largest layer."""
        return self.attention_parameters + (self.sparse_parameters if self.num_sparse else self.dense_parameters)

    @property
    def largest_tensor(self) -> int:
        """Parameters of the embeddings, or of two of the three matrices of all experts of a layer: one tensor."""
        table = self.vocab_size * self.hidden_size
        return max(table, 2 * self.experts * self.expert_size * self.hidden_size if self.num_sparse else 0)

    @property
    def num_parameters(self) -> int:
        """Parameters of the model."""
        num_dense = self.num_hidden_layers - self.num_sparse
        layers = self.num_hidden_layers * self.attention_parameters
        layers += num_dense * self.dense_parameters + self.num_sparse * self.sparse_parameters
        return self.num_embeddings + layers + self.hidden_size


class MemoryPart(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one kind, and how it was computed."""

    name: str
    num_bytes: int
    arithmetic: str


class MemoryEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one trainer process, which holds the whole model or shares it with others."""

    shape: ModelShape
    states: list[MemoryPart]
    update: list[MemoryPart]
    publication: list[MemoryPart]

    @property
    def peak_bytes(self) -> int:
        """Most that is needed at a time."""
        return sum_bytes(self.states) + max(sum_bytes(self.update), sum_bytes(self.publication))


def sum_bytes(parts: Sequence[MemoryPart]) -> int:
    """Return the memory of parts that are there at the same time."""
    return sum(part.num_bytes for part in parts)


def read_shape(model: Path) -> ModelShape:
    """Return the sizes in the config.json of a model's directory.

    Raises: BadInputError: there is none, or the model is of a kind that the arithmetic does not cover.
    """
    path = model / "config.json"
    try:
        written = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
        shape = msgspec.convert(written.get("text_config", written), ModelShape)
    except OSError as error:
        raise BadInputError(f"memory: expected {path}, found {error.strerror}; correct 'model'") from error
    except (msgspec.MsgspecError, *UNREADABLE) as error:
        raise BadInputError(f"memory: expected the sizes of a decoder in {path}, found: {error}") from error
    if shape.experts and shape.model_type not in _EXPERTS:
        raise BadInputError(
            f"memory: expected experts as in {', '.join(sorted(_EXPERTS))} in {path}, found model_type"
            f" {shape.model_type or 'none'!r}, whose sizes the arithmetic does not know"
        )
    return shape


def estimate_memory(
    config: TrainConfig, shape: ModelShape, max_tokens: int | None = None, *, num_ranks: int = 1
) -> MemoryEstimate:
    """Estimate what a run needs.

    Args:
        config: of the run.
        shape: of its model.
        max_tokens: of one micro-batch; None: ``optimizer.microbatch_tokens``, or more where rows are longer.
        num_ranks: processes that share weights, gradients and optimizer; each has micro-batches of its own.
    """
    tokens = max_tokens or _count_pass_tokens(config)
    size = {"float32": 4, "bfloat16": 2}[config.optimizer.precision]
    total = shape.num_parameters + _num_adapter(config.lora, shape)
    trained = _num_adapter(config.lora, shape) or total
    states = [
        _part("weights", total, "parameters, and the optimizer's master copy, in float32", _FLOAT),
        _part("gradients", trained, "trained parameters in float32", _FLOAT),
        _part("Adam", trained, "trained parameters, two moments in float32", 2 * _FLOAT),
    ]
    if resolve_algorithm(config.algorithm).kl and not config.lora:
        states.append(_part("reference", total, "parameters of the first weights, for algorithm.kl", _FLOAT))
    states = [_share(part, num_ranks) for part in states]
    gathered = shape.num_embeddings + 2 * shape.layer_parameters
    update = [
        _part("weights in use", gathered, "parameters of embeddings and two layers, gathered", size),
        *_activations(config, shape, tokens, size),
    ]
    publication = [_part("written weights", shape.num_parameters, "parameters, whole in memory", size)]
    return MemoryEstimate(shape=shape, states=states, update=update, publication=publication)


def _count_pass_tokens(config: TrainConfig) -> int:
    """Return the most tokens of a process in one pass: of a full micro-batch, or of its part of the longest row."""
    optimizer, cluster = config.optimizer, config.cluster
    limits = (optimizer.max_row_tokens, cluster.max_model_len if cluster else None)
    longest = min((one for one in limits if one is not None), default=0)
    return max(optimizer.microbatch_tokens, -(-longest // optimizer.sequence_parallel))


def _activations(config: TrainConfig, shape: ModelShape, tokens: int, size: int) -> list[MemoryPart]:
    """Return what a forward pass stores for the backward pass, and what that needs beside it.

    Experts store what those of one token do; a router that prefers some makes no difference to the sum over tokens.
    A layer stores its input, the normalised input before and after its weights, the same before the MLP, and in
    ``query_size`` queries and the output of attention, keys and values, and four values of the MLP. Norms compute in
    float32. Beside the layers are the last norm and the gradient in one MLP.
    """
    h, q, k, f = shape.hidden_size, shape.query_size, shape.key_size, shape.mlp_width
    layer = size * (6 * h + 2 * q + 2 * k + 4 * f) + 2 * h * (_FLOAT - size)
    terms = f"({size} B x (6 x {h:,} + 2 x {q:,} + 2 x {k:,} + 4 x {f:,})"
    terms += f" + {2 * (_FLOAT - size)} B x {h:,})" if size < _FLOAT else ")"
    logits = _logits(config, shape, tokens, size)
    count = shape.num_hidden_layers
    if config.optimizer.gradient_checkpointing:  # logits are gone when layers are computed again
        again = _per_token("computed again", tokens, layer, f"{terms}, one layer")
        kept = _per_token("activations", tokens, count * h * size, f"{count} layers x {size} B x {h:,}, their inputs")
        return [kept, max(logits, again, key=lambda part: part.num_bytes)]
    end = size * (3 * h + 2 * f)
    return [
        _per_token("activations", tokens, count * layer, f"{count} layers x {terms}"),
        _per_token("last layers", tokens, end, f"{size} B x (3 x {h:,} + 2 x {f:,})"),
        logits,
    ]


def _logits(config: TrainConfig, shape: ModelShape, tokens: int, size: int) -> MemoryPart:
    entropy = config.algorithm.entropy
    copies = _LOGIT_COPIES + (_ENTROPY_COPIES if max(entropy.start, entropy.end or 0.0) > 0 else 0)
    words, chunk = shape.vocab_size, min(tokens, CHUNK_TOKENS)
    each = copies * _FLOAT + (size if size < _FLOAT else 0)
    table = words * shape.hidden_size * (_FLOAT + size)
    note = f"{chunk:,} tokens at a time x {words:,} words x {each} B + {words:,} x {shape.hidden_size:,} x"
    note = f"{note} {_FLOAT + size} B, the gradient of their weight"
    return MemoryPart(name="logits", num_bytes=chunk * words * each + table, arithmetic=note)


def _per_token(name: str, tokens: int, num_bytes: int, note: str) -> MemoryPart:
    return MemoryPart(name=name, num_bytes=tokens * num_bytes, arithmetic=f"{tokens:,} tokens x {note}")


def _num_adapter(lora: LoraConfig | None, shape: ModelShape) -> int:
    """Return the parameters of adapters at all linear layers; 0 without adapters."""
    if lora is None:
        return 0
    h, q, k, f = shape.hidden_size, shape.query_size, shape.key_size, shape.intermediate_size
    num_dense = shape.num_hidden_layers - shape.num_sparse  # experts are no linear layers to PEFT
    ends = {"q_proj": h + q, "k_proj": h + k, "v_proj": h + k, "o_proj": q + h}
    mlp = {"gate_proj": h + f, "up_proj": h + f, "down_proj": f + h}
    names = ends | mlp if lora.target_modules == "all-linear" else lora.target_modules
    in_attention, in_mlp = (sum(widths.get(name, 0) for name in names) for widths in (ends, mlp))
    return lora.rank * (shape.num_hidden_layers * in_attention + num_dense * in_mlp)


def _share(part: MemoryPart, num_ranks: int) -> MemoryPart:
    if num_ranks == 1:
        return part
    arithmetic = f"{part.arithmetic}, / {num_ranks} processes"
    return MemoryPart(name=part.name, num_bytes=-(-part.num_bytes // num_ranks), arithmetic=arithmetic)


def _part(name: str, number: int, of: str, size: int) -> MemoryPart:
    return MemoryPart(name=name, num_bytes=number * size, arithmetic=f"{number:,} x {size} B, {of}")
