"""One transformers model with random weights, compiled and called: what `models` records.

python benchmarks/model_program.py gpt2|bert|llama static|dynamic inference|training [BACKEND]
"""

import contextlib
import sys

import torch
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

MODELS = {
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(
            n_layer=2, n_embd=64, n_head=4, vocab_size=100, n_positions=64,
            bos_token_id=0, eos_token_id=0, use_cache=False,
        )
    ),
    "bert": lambda: BertModel(
        BertConfig(
            num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=128,
            vocab_size=100,
        )
    ),
    "llama": lambda: LlamaForCausalLM(
        LlamaConfig(
            num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=128, vocab_size=100, use_cache=False,
        )
    ),
}  # fmt: skip


def main(name: str, shapes: str, mode: str, backend: str = "inductor") -> None:
    """Compile the model and call it once; `dynamic` marks the sequence length."""
    torch.manual_seed(0)
    training = mode == "training"
    model = MODELS[name]().train(training)
    tokens = torch.randint(0, 100, (2, 17))
    if shapes == "dynamic":
        torch._dynamo.mark_dynamic(tokens, 1)
    compiled = torch.compile(model, backend=backend)
    with contextlib.nullcontext() if training else torch.no_grad():
        result = compiled(input_ids=tokens)
    if training:
        result[0].sum().backward()


if __name__ == "__main__":
    main(*sys.argv[1:])
