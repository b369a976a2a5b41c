"""The demo's first model: a tiny untrained Qwen2 whose words are whole tokens.

``python -m trainer_adapter.demo.model DIRECTORY SEED`` writes it. The words are *added* tokens: transformers 5 reads a
qwen2 directory with a byte-pair tokenizer whatever its configuration says, and would drop plain vocabulary words.
"""

# transformers and tokenizers are untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2ForCausalLM

from agent_layer.errors import EngineError
from trainer_adapter.tiny_model import make_untrained

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
    return make_untrained(seed, vocabulary=len(SPECIAL + WORDS + NUMBERS), positions=512, end=1, pad=0)


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
