"""Rows without padding: scores of tokens in chunks, attention row by row, and the models that can be packed.

torch takes seconds to import, so it is imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import pytest

from agent_layer.errors import BadInputError
from trainer_adapter.verl_keys import CHUNK_TOKENS, PACKED_ATTENTION

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other

WORDS, WIDTH = 37, 8


def draw_tokens(num_tokens, seed=0, words=WORDS):
    """Hidden states, a weight, a bias, next tokens, and a temperature for each token."""
    import torch

    dice = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=dice).requires_grad_()

    next_ids = torch.randint(words, (num_tokens,), generator=dice)
    temperature = torch.tensor([0.5, 1.0, 1.7])[torch.randint(3, (num_tokens,), generator=dice)]
    return draw(num_tokens, WIDTH), draw(words, WIDTH), draw(words), next_ids, temperature


@pytest.mark.parametrize("num_tokens", [1, 63, 64, 65, 200])
@pytest.mark.parametrize(("scale", "cap"), [(1.0, None), (0.25, 3.0)])
@pytest.mark.parametrize("has_entropy", [True, False])
def test_scores_in_chunks_and_their_gradients_are_those_of_whole_logits(
    monkeypatch, num_tokens, scale, cap, has_entropy
):
    import torch

    from trainer_adapter.verl.packed import logprobs
    from trainer_adapter.verl.packed.logprobs import LogitRule, ScoredTokens, score_tokens

    monkeypatch.setattr(logprobs, "CHUNK_TOKENS", 64)
    hidden, weight, bias, next_ids, temperature = draw_tokens(num_tokens)
    weigh = torch.linspace(-1, 2, num_tokens)

    def gradients(found, entropy):
        total = (found * weigh).sum() + (0.0 if entropy is None else (entropy * weigh.flip(0)).sum())
        return torch.autograd.grad(total, (hidden, weight, bias))

    found, entropy = score_tokens(
        hidden, weight, bias, ScoredTokens(next_ids, temperature, has_entropy), LogitRule(scale, cap)
    )
    logits = (hidden @ weight.T + bias) * scale
    whole = ((cap * torch.tanh(logits / cap) if cap else logits) / temperature[:, None]).log_softmax(-1)
    expected = whole.gather(1, next_ids[:, None])[:, 0]
    expected_entropy = -(whole.exp() * whole).sum(-1) if has_entropy else None

    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert (entropy is None) == (not has_entropy)
    if has_entropy:
        torch.testing.assert_close(entropy, expected_entropy, rtol=1e-6, atol=1e-6)
    for own, other in zip(gradients(found, entropy), gradients(expected, expected_entropy), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=2e-6)


def test_the_gradient_of_a_bfloat16_weight_is_summed_in_float32():
    import torch

    from trainer_adapter.verl.packed.logprobs import LogitRule, ScoredTokens, score_tokens

    hidden, weight, _, next_ids, temperature = draw_tokens(12 * CHUNK_TOKENS)
    low = weight.detach().bfloat16().requires_grad_()
    scored = ScoredTokens(next_ids, temperature, has_entropy=False)

    def gradient(hidden, weight):
        return torch.autograd.grad(score_tokens(hidden, weight, None, scored, LogitRule())[0].sum(), weight)[0].float()

    found = gradient(hidden.bfloat16(), low)
    expected = gradient(hidden.bfloat16().float(), low.detach().float().requires_grad_())
    rounding = 2**-8  # of a bfloat16, relative

    assert float((found - expected).norm() / expected.norm()) < rounding


def measure_scores(num_tokens, words):
    """Most bytes, beside the inputs, that are allocated at a time in a forward and a backward pass of the scores."""
    from trainer_adapter.verl.packed.logprobs import LogitRule, ScoredTokens, score_tokens

    from .long_rows import measure_peak

    hidden, weight, bias, next_ids, temperature = draw_tokens(num_tokens, words=words)

    def act():
        scored = ScoredTokens(next_ids, temperature, has_entropy=True)
        found, entropy = score_tokens(hidden, weight, bias, scored, LogitRule())
        (found.sum() + entropy.sum()).backward()

    return measure_peak(act)[1]


def test_memory_of_logits_does_not_grow_with_rows():
    words = 2000
    chunk = CHUNK_TOKENS * words * 4
    short, long = measure_scores(CHUNK_TOKENS, words), measure_scores(8 * CHUNK_TOKENS, words)

    assert short > 2 * chunk, "the profiler saw the logits"
    assert long - short < chunk / 2, "hidden states and scores grow, logits do not"


def attend_one(query, key, value, window):
    """The formula of attention over one row, [num_heads, num_tokens, head_dim], each pair of tokens at a time."""
    import torch

    num_tokens, repeats = query.shape[1], query.shape[0] // key.shape[0]
    key, value = key.repeat_interleave(repeats, 0), value.repeat_interleave(repeats, 0)
    scores = query @ key.transpose(1, 2) / query.shape[2] ** 0.5
    places = torch.arange(num_tokens)
    seen = (places[None] <= places[:, None]) & (places[None] > places[:, None] - (window or num_tokens))
    return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ value


@pytest.mark.parametrize("window", [None, 1, 3, 8, 100])
@pytest.mark.parametrize("num_key_heads", [1, 2, 4])
@pytest.mark.parametrize("row_lengths", [[1], [5, 1, 9], [2] * 6])
def test_each_token_sees_those_before_it_in_its_own_row(monkeypatch, window, num_key_heads, row_lengths):
    import torch

    from trainer_adapter.verl.packed import attention

    monkeypatch.setattr(attention, "_WINDOW_QUERIES", 4)
    dice = torch.Generator().manual_seed(1)
    heads = (4, num_key_heads, num_key_heads)
    query, key, value = (torch.randn(1, number, sum(row_lengths), 8, generator=dice) for number in heads)

    found, _ = attention.attend_packed(
        torch.nn.Module(), query, key, value, None, sliding_window=window, row_lengths=row_lengths
    )

    rows = [one[0].split(row_lengths, dim=1) for one in (query, key, value)]
    expected = torch.cat([attend_one(*row, window) for row in zip(*rows, strict=True)], dim=1)
    torch.testing.assert_close(found[0], expected.transpose(0, 1), rtol=1e-5, atol=1e-6)


SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.3,
    "pad_token_id": 0,
}
PACKED = {
    "Qwen2": {},
    "Qwen3": {},
    "Llama": {"tie_word_embeddings": True},
    "Mistral": {"sliding_window": 3},
    "Granite": {"logits_scaling": 6.0},
    "Cohere": {"logit_scale": 0.3},
    "Qwen3Moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 1},
    "Gemma3": {"sliding_window": 3, "query_pre_attn_scalar": 8},
}
UNPACKED = {
    "Gemma2": {"attn_logit_softcapping": 5.0},  # scores of attention
    "Lfm2": {"layer_types": ["conv", "full_attention"]},  # a convolution over neighbours
    "Mamba": {"state_size": 4, "expand": 1},  # a state that goes on
    "Bloom": {"n_head": 4},  # its own attention
}


def make_model(name, options):
    import torch
    import transformers

    from trainer_adapter.verl.packed.attention import register_attention
    from trainer_adapter.verl.packed.logprobs import replace_logits

    register_attention()
    kind = "Gemma3Text" if name == "Gemma3" else name
    config = getattr(transformers, f"{kind}Config")(**SIZES | options, attn_implementation=PACKED_ATTENTION)
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")._from_config(config).float().eval()
    replace_logits(model)
    return model


@pytest.mark.parametrize("name", PACKED)
def test_models_whose_rows_stay_apart_are_packed(name):
    from trainer_adapter.verl.packed.engine import check_packing

    check_packing(make_model(name, PACKED[name]))


@pytest.mark.parametrize("name", UNPACKED)
def test_models_whose_layers_see_other_rows_or_change_the_formula_are_refused_by_name(name):
    from trainer_adapter.verl.packed.engine import check_packing

    with pytest.raises(BadInputError, match=f"{name}.*expected"):
        check_packing(make_model(name, UNPACKED[name]))
