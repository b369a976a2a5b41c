"""The demo's first model: a tiny untrained Qwen2 whose words are whole tokens.

``python -m trainer_adapter.demo.model DIRECTORY SEED`` writes it. The words are *added* tokens: transformers 5 reads a
qwen2 directory with a byte-pair tokenizer whatever its configuration says, and would drop plain vocabulary words.
"""

# transformers and tokenizers are untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import sys
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from agent_layer.errors import EngineError

SPECIAL = ["<pad>", "<|end|>", "<unk>"]
WORDS = ["guess", "higher", "lower", "found", "foul", "yes", "no", "open", "empty"]
NUMBERS = [str(number) for number in range(1, 10)]
"""More numbers than the game has: the agent must learn which ones are of use."""

TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"
"""Contents only: role tokens before each answer slow the learning of so small a model a lot."""


def write_model(directory: Path, seed: int) -> None:
    """Write weights, configuration and tokenizer in Hugging Face's form.

    Raises: EngineError: the tokenizer does not read back as it was written.
    """
    model = make_model(seed)
    model.generation_config.eos_token_id = 1
    model.save_pretrained(directory)
    _tokenizer().save_pretrained(directory)
    _check(directory)


def make_model(seed: int) -> Qwen2ForCausalLM:
    """Return the untrained model of a seed."""
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(_configuration()).float()


def _configuration() -> Qwen2Config:
    return Qwen2Config(
        vocab_size=len(SPECIAL + WORDS + NUMBERS),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )


def _tokenizer() -> PreTrainedTokenizerFast:
    words = SPECIAL + WORDS + NUMBERS
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens([AddedToken(word, normalized=False, lstrip=True) for word in WORDS + NUMBERS])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<pad>", unk_token="<unk>", model_max_length=64
    )
    fast.chat_template = TEMPLATE
    return fast


def _check(directory: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(directory)
    conversation = [{"content": word} for word in ("guess", "5", "higher")]
    text = tokenizer.apply_chat_template(conversation, tokenize=False)
    words = tokenizer.convert_ids_to_tokens(tokenizer(text, add_special_tokens=False)["input_ids"])
    if words != ["guess", "5", "higher"]:
        raise EngineError(
            f"model {directory}: expected 'guess 5 higher' to be three tokens, found {words};"
            " this version of transformers reads the tokenizer differently"
        )


if __name__ == "__main__":
    write_model(Path(sys.argv[1]), int(sys.argv[2]))
