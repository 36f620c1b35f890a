"""One architecture of transformers, tiny and with random weights, compiled as a user would.

    python -m benchmarks.exam.architectures NAME BACKEND

Runs inference at two sizes and one training step.  The configuration is the default one of the
architecture with every size in it made small; the inputs are the first that eager mode accepts.
Exits with 3, and the reason on the last line, where no tiny model can be built or eager mode
rejects every input: such a program says nothing about `torch.compile`.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

NOT_TRIED = 3
"""The exit status of a program that eager mode cannot run."""

MOST_PARAMETERS = 100_000_000
_SMALL: tuple[tuple[str, int], ...] = (
    (r"vocab_size|n_vocab|num_embeddings|.*_vocab_size", 120),
    (r"(num_)?(hidden|encoder|decoder|conv|attention|temporal|text|vision|expert)?_?layers?", 2),
    (r"n_layers?|num_blocks|num_layers|.*_num_layers|num_.*_layers|.*_layers|depth|.*_depth", 2),
    (r"(num_)?(key_value|kv)_heads|num_key_value_heads|.*kv_heads", 2),
    (r"num_.*heads|n_heads?|.*_heads?|num_heads|.*_attention_heads", 4),
    (r"head_dim|.*_head_dim|.*head_size", 16),
    (r"(d_)?(kv|head)", 16),
    (r"hidden_size|d_model|n_embd|embed_dim|hidden_dim|width|.*hidden_size|.*_embed_dim|dim", 64),
    (r".*embedding_size|embedding_dim|projection_dim|.*projection_dim|emb_dim", 64),
    (r"intermediate_size|d_ff|n_inner|ffn_dim|.*ffn_dim|.*intermediate_size|mlp_dim|d_inner", 96),
    (r"num_(local_|routed_)?experts|n_routed_experts|moe_num_experts", 4),
    (r"num_experts_per_tok|moe_topk|top_k|num_selected_experts", 2),
    (r"image_size", 64),
    (r"max_position_embeddings|n_positions|max_sequence_length|max_seq_len", 256),
    (r"num_queries", 10),
)
"""Sizes by the names that configurations use for them, the first match wins."""
_EVERY = frozenset(range(len(_SMALL)))
_HEADS = frozenset(place for place, (name, _) in enumerate(_SMALL) if "head" in name)
_WIDTHS = _HEADS | {place for place, (_, size) in enumerate(_SMALL) if size in (64, 96)}
_WIDTH = r"(hidden|intermediate|ffn)_(size|dim)|.*_(hidden|intermediate)_size|d_(model|ff|inner)"
_COUNT = r".*heads|n_heads?|.*n_?groups|num_query_groups|.*_d_ssm"
_PROPORTIONAL = re.compile(rf"{_WIDTH}|{_COUNT}")
"""Widths, and counts of heads and groups: divided by one number, they fit together as before."""


@dataclass(frozen=True)
class Shrinking:
    """How sizes are made small: by these rules of `_SMALL`, those that fit together by `factor`."""

    rules: frozenset[int]
    factor: int = 1


_SHRINKINGS = (
    *map(Shrinking, (_EVERY, _EVERY - _HEADS, _EVERY - _WIDTHS, frozenset({1, 2}))),
    *(Shrinking(_EVERY - _WIDTHS, factor) for factor in (64, 32, 16, 8)),
)
_TOKEN = r".*_(token_)?(id|idx|index)"
_FEWEST_TOKENS = 100
"""A vocabulary of 120 has no token beyond."""

_WRONG_INPUT = (
    AttributeError, AssertionError, IndexError, KeyError, NotImplementedError, OSError,
    RuntimeError, TypeError, ValueError, ImportError, ZeroDivisionError,
)  # fmt: skip
"""What a model raises for a configuration or an input that it does not take."""


class NotTried(Exception):
    """No tiny model, or no input that eager mode accepts."""


def names() -> list[str]:
    """Every architecture that transformers has a base model for."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return sorted(MODEL_MAPPING_NAMES)


def tiny_config(name: str, shrink: Shrinking) -> Any:
    """The default configuration of an architecture with its sizes made small."""
    from transformers import CONFIG_MAPPING

    config = CONFIG_MAPPING[name]()
    _shrink(config, shrink, set())
    config.use_cache = False
    return config


def _shrink(config: Any, shrink: Shrinking, seen: set[int]) -> None:
    if id(config) in seen:
        return
    seen.add(id(config))
    for key, value in list(vars(config).items()):
        if hasattr(value, "to_dict"):
            _shrink(value, shrink, seen)
        elif type(value) is int and value > 1:
            small = _small(key, value, shrink)
            if small is not None and value > small:
                setattr(config, key, small)
            elif 0 in shrink.rules and value > _FEWEST_TOKENS and re.fullmatch(_TOKEN, key):
                setattr(config, key, 2)
    kinds = getattr(config, "layer_types", None)
    layers = getattr(config, "num_hidden_layers", None)
    if "layer_types" in vars(config) and isinstance(kinds, list) and isinstance(layers, int):
        config.layer_types = _some_of_each(kinds, layers)


def _some_of_each(kinds: list[Any], count: int) -> list[Any]:
    """`count` kinds of layers: each kind that there is, if there is room."""
    different = list(dict.fromkeys(kinds))
    return (different + kinds)[:count]


def _small(key: str, value: int, shrink: Shrinking) -> int | None:
    if shrink.factor > 1 and _PROPORTIONAL.fullmatch(key):
        return max(1, value // shrink.factor)
    for place, (pattern, size) in enumerate(_SMALL):
        if re.fullmatch(pattern, key):
            return size if place in shrink.rules else None
    return None


def build(name: str) -> torch.nn.Module:
    """A tiny model with random weights that eager mode can run.  Raises NotTried without one.

    Some sizes of some architectures depend on each other: with less made small, they agree again.
    """
    reasons = []
    for shrink in _SHRINKINGS:
        try:
            model = _model(tiny_config(name, shrink))
            inputs_for(model, 16)
            return model
        except (*_WRONG_INPUT, NotTried) as error:
            reasons.append(f"{type(error).__name__}: {error}")
    raise NotTried(f"no tiny model: {reasons[0]:.200}")


def _model(config: Any) -> torch.nn.Module:
    from transformers import AutoModel

    with torch.device("meta"):
        count = sum(p.numel() for p in AutoModel.from_config(config).parameters())
    if count > MOST_PARAMETERS:
        raise NotTried(f"{count} parameters with every known size made small")
    torch.manual_seed(0)
    model: torch.nn.Module = AutoModel.from_config(config)
    return model.eval()


Inputs = dict[str, torch.Tensor]


def input_candidates(model: Any, size: int) -> Iterator[Inputs]:
    """Sets of inputs that the model may take, likely ones first; `size` is a length."""
    config = model.config
    accepted = set(inspect.signature(model.forward).parameters)
    groups = [group for group in _groups(config, size) if set(group) <= accepted]
    preferred = [group for group in groups if model.main_input_name in group]
    yield from (*preferred, *groups)
    for first, second in itertools.permutations(groups, 2):
        yield {**first, **second}
    dummy: Mapping[str, torch.Tensor] = getattr(model, "dummy_inputs", {})
    yield dict(dummy)


def _groups(config: Any, size: int) -> list[Inputs]:
    text = _text_config(config)
    tokens = torch.randint(3, max(8, min(100, getattr(text, "vocab_size", 100) or 100)), (2, size))
    vision = getattr(config, "vision_config", None) or config
    side = getattr(vision, "image_size", None) or 64
    height, width = (side, side) if isinstance(side, int) else tuple(side)[:2]
    channels = getattr(vision, "num_channels", 3) or 3
    bins = next(
        (getattr(config, key) for key in ("num_mel_bins", "feature_size", "input_feat_per_channel")
         if isinstance(getattr(config, key, None), int)), 80,
    )  # fmt: skip
    frames = getattr(config, "max_source_positions", None)
    length = 2 * frames if isinstance(frames, int) and "mel" in str(vars(config)) else 16 * size
    images = torch.randn(2, channels, height, width)
    both = {"input_ids": tokens, "decoder_input_ids": tokens}
    boxes = {"input_ids": tokens, "bbox": torch.ones(2, size, 4, dtype=torch.long)}
    return [
        {"input_ids": tokens},
        {"pixel_values": images},
        both,
        {"input_values": torch.randn(2, 160 * size)},
        {"input_features": torch.randn(2, bins, length)},
        {"input_features": torch.randn(2, length, bins)},
        {"input_ids": tokens, "pixel_values": images},
        boxes,
        {"pixel_values": torch.randn(2, getattr(config, "num_frames", 4) or 4, channels, height,
                                     width)},
        {"inputs_embeds": torch.randn(2, size, getattr(text, "hidden_size", 64) or 64)},
        {"decoder_input_ids": tokens},
        {"past_values": torch.randn(2, getattr(config, "context_length", 16) or 16)},
    ]  # fmt: skip


def _text_config(config: Any) -> Any:
    return getattr(config, "text_config", None) or config


def inputs_for(model: torch.nn.Module, size: int) -> Inputs:
    """The first inputs that eager mode accepts.  Raises NotTried where it rejects all."""
    reasons = []
    for candidate in input_candidates(model, size):
        try:
            with torch.no_grad():
                model(**candidate)
            return candidate
        except _WRONG_INPUT as error:
            reasons.append(f"{type(error).__name__}: {error}")
    raise NotTried(f"eager mode rejects every input: {reasons[0] if reasons else 'none':.200}")


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """The floating tensors of an output that a loss can be made of."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() and value.requires_grad:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def run(model: torch.nn.Module, backend: str) -> None:
    """Call the compiled model at two sizes, then train it for one step."""
    compiled: Callable[..., object] = torch.compile(model, backend=backend)
    for size in (16, 24):
        _call(f"inference {size}", lambda size=size: _no_grad(compiled, inputs_for(model, size)))
    model.train()
    torch._dynamo.reset()
    trained = torch.compile(model, backend=backend)
    _call("training", lambda: _step(trained, inputs_for(model, 16)))


def _no_grad(compiled: Callable[..., object], inputs: Inputs) -> None:
    with torch.no_grad():
        compiled(**inputs)


def _step(compiled: Callable[..., object], inputs: Inputs) -> None:
    found = [tensor.sum() for tensor in tensors_in(compiled(**inputs))]
    if found:
        torch.stack(found).sum().backward()


def _call(what: str, call: Callable[[], None]) -> None:
    """Go on after a failure: that torch.compile fails here is recorded, as everything else."""
    try:
        call()
    except (*_WRONG_INPUT, NotTried, torch._dynamo.exc.TorchDynamoException) as error:
        print(f"{what}: {type(error).__name__}: {str(error).splitlines()[0]:.200}", flush=True)


def main(name: str, backend: str = "aot_eager") -> int:
    """Run one architecture; the exit status."""
    warnings.filterwarnings("ignore")
    importlib.import_module("transformers").logging.set_verbosity_error()
    torch.set_num_threads(1)
    try:
        model = build(name)
    except NotTried as error:
        print(error)
        return NOT_TRIED
    run(model, backend)
    from torch._dynamo.utils import counters

    print(f"unique graphs: {counters['stats']['unique_graphs']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
