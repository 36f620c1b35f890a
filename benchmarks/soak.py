"""Thousands of compiles in one process, in flight mode: is memory flat, the disk under its cap?

    python -m benchmarks.soak [COMPILES] [MODE]

Tiny graphs, eager and aot_eager in turn; one in fifty fails, and the caches of Dynamo are reset now
and then.  A line every hundred compiles; at the end the slope of the resident memory after the
warm-up (least squares, KiB per 1,000 compiles), beside that of the same program unrecorded.  Exits
with 1 when recording adds more than `MOST_KIB` to it, or the store was ever above its cap.
"""

import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

CAP = 4 << 20
MOST_KIB = 2048
"""Slope that passes: what is left of the noise of an allocator."""
WARM_UP = 0.3


def main(arguments: list[str]) -> int:
    """Run the program with and without the recorder; the exit status."""
    if arguments and arguments[0] == "--child":
        return child(int(arguments[1]), arguments[2], arguments[3])
    count = int(arguments[0]) if arguments else 2000
    mode = arguments[1] if len(arguments) > 1 else "flight"
    found = {name: _run(count, name) for name in (mode, "none")}
    added = found[mode]["slope"] - found["none"]["slope"]
    for name, figures in found.items():
        print(f"{name}: {json.dumps(figures)}")
    print(f"recording adds {added:+.0f} KiB per 1,000 compiles; cap {CAP} bytes")
    return int(added > MOST_KIB or found[mode]["largest"] > CAP)


def _run(count: int, mode: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="torchreel-soak-") as folder:
        command = [sys.executable, "-m", "benchmarks.soak", "--child", str(count), mode, folder]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        for line in done.stdout.splitlines()[:-1]:
            print(f"{mode} {line}", flush=True)
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return figures


def child(count: int, mode: str, folder: str) -> int:
    """The program itself: prints lines, and the figures as JSON at the end."""
    import torch

    import torchreel
    from torchreel.recorder.settings import Settings

    store = Path(folder, "run.db")
    if mode != "none":
        torchreel.install(store, mode, settings=Settings(max_bytes=CAP))
    largest = _watch(store)
    x = torch.ones(4)
    samples: list[tuple[int, int]] = []
    started = time.monotonic()
    for n in range(count):
        _compile(n, x)
        if n % 20 == 19:
            samples.append((n, _resident()))
        if n % 100 == 99:
            print(f"{n + 1}: {_resident()} KiB, {size(store)} bytes", flush=True)
    torchreel.uninstall()
    warm = [s for s in samples if s[0] >= count * WARM_UP]
    figures = {
        "slope": round(_slope(warm), 1), "largest": max(largest[0], size(store)),
        "end": size(store), "seconds": round(time.monotonic() - started, 1),
    }  # fmt: skip
    print(json.dumps(figures))
    return 0


def _compile(n: int, x: object) -> None:
    import torch

    def refuse(gm: object, inputs: object) -> object:
        raise ValueError(f"number {n}")

    if n % 10 == 0:
        torch._dynamo.reset()
        gc.collect()
    backend = refuse if n % 50 == 49 else "aot_eager" if n % 2 else "eager"
    try:
        torch.compile(lambda v: (v * n).sin() + n, backend=backend)(x)
    except RuntimeError:
        assert n % 50 == 49


def size(store: Path) -> int:
    """Bytes on disk: the file and what SQLite keeps beside it."""
    return sum(file.stat().st_size for file in store.parent.glob("run.db*") if file.exists())


def _watch(store: Path) -> list[int]:
    """The largest size so far, looked at ten times a second by a thread."""
    largest = [0]

    def look() -> None:
        while True:
            with contextlib.suppress(OSError):
                largest[0] = max(largest[0], size(store))
            time.sleep(0.1)

    threading.Thread(target=look, daemon=True).start()
    return largest


def _resident() -> int:
    """KiB, from /proc (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def _slope(samples: list[tuple[int, int]]) -> float:
    """KiB per 1,000 compiles."""
    middle_n = sum(n for n, _ in samples) / len(samples)
    middle_m = sum(m for _, m in samples) / len(samples)
    above = sum((n - middle_n) * (m - middle_m) for n, m in samples)
    return 1000 * above / sum((n - middle_n) ** 2 for n, _ in samples)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
