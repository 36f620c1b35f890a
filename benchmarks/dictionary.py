"""Makes a dictionary for packs (`store.blobs.dictionaries`) from recordings of small programs.

    python -m benchmarks.dictionary FILE.zst

Each program is recorded in a process of its own; none of them is one that `recording` measures.
What goes into the dictionary is every phrase that the blobs of at least two recordings have, once;
what most of them have comes last, and what is more than `_MOST` bytes before the end is left out.
Paths, digests and long numbers are of this machine and this moment: they are taken out first.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import zstandard
from numpy.typing import NDArray
from sqlalchemy import select

from torchreel.store import schema
from torchreel.store.database import Store

_PHRASE = 12
"""Bytes by which two phrases are known to be the same."""
_SHORTEST = 24
_GAP = 32
"""Bytes between two phrases that are kept with them: one long match takes less than two."""
_MOST = 384 << 10
"""Bytes of a dictionary, nearly all that there is: two thirds of it make a pack 3 % larger."""


def _infer(model: torch.nn.Module, words: torch.Tensor) -> None:
    with torch.no_grad():
        torch.compile(model.eval(), backend=_backend())(words)


def _llama() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=2, hidden_size=48, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=80, vocab_size=96, use_cache=False,
    )  # fmt: skip
    _infer(LlamaForCausalLM(config), torch.randint(0, 96, (2, 11)))


def _opt() -> None:
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        num_hidden_layers=2, hidden_size=32, num_attention_heads=2, ffn_dim=48, vocab_size=80,
        word_embed_proj_dim=32, max_position_embeddings=40, use_cache=False,
    )  # fmt: skip
    _infer(OPTForCausalLM(config), torch.randint(0, 80, (3, 7)))


def _training() -> None:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    step = torch.compile(model, backend=_backend(), dynamic=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for rows in (6, 10):
        step(torch.randn(rows, 8)).pow(2).mean().backward()
        optimizer.step()


class _Block(torch.nn.Module):
    """A residual block (He, Zhang, Ren, Sun: Deep residual learning, 2015)."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        nn = torch.nn
        self.first = nn.Conv2d(before, after, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, padding=1, groups=2)
        self.short = nn.Conv2d(before, after, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.second(self.norm(self.first(x)).relu())
        return torch.nn.functional.dropout(inner + self.short(x), 0.1, self.training)


def _residual() -> None:
    nn = torch.nn
    tail = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5))
    model = nn.Sequential(_Block(3, 6), nn.MaxPool2d(2), _Block(6, 12), *tail)
    optimizer = torch.optim.Adam(model.parameters())
    step = torch.compile(model, backend=_backend())
    loss = nn.functional.cross_entropy(step(torch.randn(4, 3, 14, 14)), torch.arange(4))
    loss.backward()
    optimizer.step()


def _segmenter() -> None:
    """Down and up again: strided and transposed convolutions (Ronneberger et al.: U-Net, 2015)."""
    nn = torch.nn
    down = (nn.Conv2d(1, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.SiLU(), nn.AvgPool2d(2))
    up = (nn.ConvTranspose2d(4, 2, 2, stride=2), nn.BatchNorm2d(2), nn.Sigmoid())
    model = torch.compile(nn.Sequential(*down, *up), backend=_backend())
    for size in (15, 19):
        model(torch.randn(2, 1, size, size)).sum().backward()


def _branches() -> None:
    def program(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        print("a graph break")
        x = torch.cond(flag, lambda y: y.sin(), lambda y: y.cos(), (x,))
        return x[x > 0].sum() + x.view(-1).item()

    compiled = torch.compile(program, backend=_backend())
    compiled(torch.ones(1, 1), torch.tensor(True))
    compiled(torch.ones(1), torch.tensor(False))


def _attention() -> None:
    nn = torch.nn
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1)
    compiled = torch.compile(model.eval(), backend=_backend())
    for length in (5, 9):
        compiled(torch.randn(2, length, 16))


PROGRAMS: dict[str, Callable[[], None]] = {
    "llama": _llama, "opt": _opt, "training": _training, "residual": _residual,
    "segmenter": _segmenter, "branches": _branches, "attention": _attention,
}  # fmt: skip
RUNS = [(program, "aot_eager") for program in PROGRAMS] + [
    (program, "inductor") for program in ("training", "residual", "branches")
]


def _backend() -> str:
    return sys.argv[2]


def main(target: Path) -> None:
    """Record the programs, and write the dictionary that their blobs make."""
    texts = [_clean(_recorded(*run)) for run in RUNS]
    content = b"".join(_phrases(texts))[-_MOST:]
    target.write_bytes(zstandard.ZstdCompressor(level=19).compress(content))
    print(f"{target}: {len(content)} bytes, {target.stat().st_size} when compressed")


def _recorded(program: str, backend: str) -> bytes:
    """The blobs of a recording, one after another."""
    with tempfile.TemporaryDirectory(prefix="torchreel-dictionary-") as folder:
        path = Path(folder, "run.db")
        variables = {
            **os.environ, "TORCHREEL": f"full:{path}", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache",
            "TRANSFORMERS_VERBOSITY": "error",
        }  # fmt: skip
        command = [sys.executable, __file__, program, backend]
        subprocess.run(command, env=variables, check=False, capture_output=True)
        with Store.open(path) as store, store.connect() as connection:
            rows = select(schema.blobs.c.digest).order_by(schema.blobs.c.pack, schema.blobs.c.start)
            found = [store.read_blob(digest) for digest in connection.execute(rows).scalars()]
        print(f"{program} {backend}: {len(found)} blobs, {sum(map(len, found))} bytes")
        return b"\n".join(found)


_LIBRARY = re.compile(rb"/[^\s\"'<>:,()]*?(/lib/python\d\.\d+/)")
_OURS = re.compile(
    rb"(?<![\w.])/(?!lib/python)[\w.~-]+/[^\s\"'<>:,()]*|[0-9a-f]{16,}|\d{6,}|torchreel[\w-]*/[\w./]*"
)


def _clean(text: bytes) -> bytes:
    """The text with a NUL in place of what is of this machine."""
    return _OURS.sub(b"\0", _LIBRARY.sub(rb"\1", text))


def _phrases(texts: Sequence[bytes]) -> Iterator[bytes]:
    """What at least two texts have, each once; what most of them have last."""
    hashes = [_hashes(text) for text in texts]
    every = np.concatenate([np.unique(each) for each in hashes])
    known, counts = np.unique(every, return_counts=True)
    taken: set[int] = set()
    found: list[tuple[float, bytes]] = []
    for text, here in zip(texts, hashes, strict=True):
        common = counts[np.searchsorted(known, here)]
        for start, end in _joined(_runs(common >= 2, here, taken)):
            phrase = text[start : end + _PHRASE - 1]
            if len(phrase) >= _SHORTEST:
                found.append((float(common[start:end].mean()), phrase))
    for _, phrase in sorted(found, key=lambda item: item[0]):
        yield from (part for part in phrase.split(b"\0") if len(part) >= _SHORTEST)


def _runs(
    wanted: NDArray[np.bool_], hashes: NDArray[np.uint64], taken: set[int]
) -> Iterator[tuple[int, int]]:
    """Where phrases begin and end that are wanted and not taken yet."""
    start = None
    for place, (good, value) in enumerate(zip(wanted.tolist(), hashes.tolist(), strict=True)):
        if good and value not in taken:
            taken.add(value)
            start = place if start is None else start
        elif start is not None:
            yield start, place
            start = None
    if start is not None:
        yield start, len(hashes)


def _joined(runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The runs, with those made one between which there is little."""
    last: tuple[int, int] | None = None
    for start, end in runs:
        if last is not None and start - (last[1] + _PHRASE - 1) <= _GAP:
            last = (last[0], end)
            continue
        if last is not None:
            yield last
        last = (start, end)
    if last is not None:
        yield last


def _hashes(text: bytes) -> NDArray[np.uint64]:
    """A number for the phrase at each place of a text."""
    data = np.frombuffer(text, np.uint8).astype(np.uint64)
    count = len(data) - _PHRASE + 1
    found = np.zeros(count, np.uint64)
    for offset in range(_PHRASE):
        found = found * np.uint64(0x100000001B3) + data[offset : offset + count]
    return found


if __name__ == "__main__":
    if len(sys.argv) == 3:
        PROGRAMS[sys.argv[1]]()
    else:
        main(Path(sys.argv[1]))
