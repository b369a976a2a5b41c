"""Models that examples name, by the config.json of each."""

import msgspec

__all__ = ["describe_model"]

_QWEN = {"model_type": "qwen2", "max_position_embeddings": 131_072}
_MODELS = {
    "Qwen2.5-1.5B": {
        "vocab_size": 151_936,
        "hidden_size": 1_536,
        "intermediate_size": 8_960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "Qwen2.5-7B": {
        "vocab_size": 152_064,
        "hidden_size": 3_584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
    },
    "Qwen2.5-14B": {
        "vocab_size": 152_064,
        "hidden_size": 5_120,
        "intermediate_size": 13_824,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
    },
}
"""As in the config.json of each."""


def describe_model(name: str) -> bytes:
    """Return its config.json."""
    return msgspec.json.encode(_QWEN | _MODELS[name])
