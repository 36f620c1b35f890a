"""Is a compile recorded the compile unrecorded?  Compared by what torch itself writes.

    python -m benchmarks.fidelity [PROGRAM.py ...]

Without a program: three models in training, static and dynamic, a CNN training step and a program
with each higher-order operator (those of `completeness`), all with aot_eager and with Inductor.

Each program runs twice, in fresh processes with fresh caches: plain, and under the recorder; both
times torch writes its own structured trace (TORCH_TRACE) and its own log (TORCH_LOGS).  Graphs,
guards, output code, cache keys, events of the ShapeEnv, numbers of compiles, log lines, what the
program prints, its exit status and the number of tensors that are alive at the end have to be the
same, once ids, times and temporary names are taken out.  Exits with 1 when a program differs.
"""

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchreel.replay.imposed.vector_isa import copy_probes
from torchreel.store.database import Store

ALIVE = Path(__file__).with_name("alive.py")
LOGS = "guards,recompiles,graph_breaks,graph_code,aot_graphs,dynamic,output_code"

# Records that say how long something took, or which thread wrote it, and nothing else.
_TIMING = frozenset(
    {
        "chromium_event", "compilation_metrics", "compilation_metrics_runtime",
        "bwd_compilation_metrics",
    }
)  # fmt: skip
_CONTEXT = frozenset({"timestamp", "thread", "pathname", "has_payload", "start_ns", "process"})
_NORMAL = (
    (re.compile(r"0x[0-9a-f]{6,}"), "<address>"),
    # Before the ids: one in 300 ends in twelve digits.
    (re.compile(r"[0-9a-f]{8}(?:[_-][0-9a-f]{4}){3}[_-][0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"(?<![A-Za-z0-9])\d{12,}(?![A-Za-z0-9])"), "<id>"),
    # Where Python lies at the beginning of the memory, ids have as few digits as other numbers.
    (re.compile(r"(___check_(?:obj|type)_id\(.+?, )\d{7,}\)"), r"\1<id>)"),
    (re.compile(r"(?<=_)\d{7,}(?=_c\d)"), "<id>"),
    (re.compile(r"(?:/[\w.+@-]+)*/torchreel-fidelity-[\w.]+"), "<folder>"),
    (re.compile(r"\d+\.\d+(?:e-?\d+)?(?= ?(?:s|us|ms|seconds)\b)"), "<time>"),
    (re.compile(r"^[VIWE]\d{4} [\d:.]+ \d+ "), "<log> "),
    (re.compile(r"/(?:tmp|torchinductor)\w+/[\w./-]+(?<!\.)"), "<temporary>"),
    # Python counts the changes of all dicts of a process together.
    (re.compile(r"(___dict_version\(.*\) == )\d+"), r"\1<version>"),
    # fx_graph_runnable lists every variable of the environment whose name begins with TORCH.
    (re.compile(r"^os\.environ\['TORCH(REEL|_TRACE)\w*'\] = .*\n", re.MULTILINE), ""),
)  # fmt: skip


@dataclass
class Observation:
    """What one run of a program showed: records of the trace by kind, output, exit status."""

    status: int
    stdout: str
    log: list[str]
    records: dict[str, list[str]] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """How many records of each kind."""
        return {kind: len(texts) for kind, texts in sorted(self.records.items())}


def observe(
    command: Sequence[str], folder: Path, *, recorded: bool, **variables: str
) -> Observation:
    """Run `python PROGRAM ...` in a fresh process, with fresh caches, and see what torch says.

    `folder` is made, and gone afterwards: two runs in the same one hash the same paths.
    """
    folder.mkdir()
    try:
        return _observed(command, folder, recorded, variables)
    finally:
        shutil.rmtree(folder)


def _observed(
    command: Sequence[str], folder: Path, recorded: bool, variables: dict[str, str]
) -> Observation:
    environment = {
        **os.environ, "TORCH_TRACE": f"{folder}/trace", "TORCH_LOGS": LOGS,
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache", "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TRANSFORMERS_VERBOSITY": "error", "PYTHONHASHSEED": "0", **variables,
    }  # fmt: skip
    copy_probes(Path(folder, "cache"), make=False)
    if recorded:
        Store.open(f"{folder}/run.db", create=True).close()
        environment["TORCHREEL"] = f"full:{folder}/run.db"
    done = subprocess.run(
        [sys.executable, str(ALIVE), *command], env=environment, capture_output=True, text=True
    )
    assert not recorded or Path(folder, "run.db").exists()
    log = [normal(line) for line in done.stderr.splitlines()]
    found = Observation(done.returncode, normal(done.stdout), _kept(log))
    for path in sorted(Path(folder, "trace").glob("*.log")):
        for kind, text in _records(path.read_text(errors="surrogateescape")):
            found.records.setdefault(kind, []).append(text)
    return found


def normal(text: str) -> str:
    """Text without what differs between any two runs."""
    for pattern, replacement in _NORMAL:
        text = pattern.sub(replacement, text)
    return text


def _kept(log: list[str]) -> list[str]:
    """Log lines without those of the recorder's own logger."""
    return [line for line in log if "torchreel lost something" not in line]


def _records(text: str) -> Iterator[tuple[str, str]]:
    """The records of a trace file, by kind, with names of files in place of their numbers."""
    files: dict[int, str] = {}
    for head, payload in _split(text):
        metadata = json.loads(head)
        if "str" in metadata:
            files[metadata["str"][1]] = metadata["str"][0]
            continue
        kind = next(key for key in metadata if key not in _CONTEXT | {"frame_id", "rank"})
        if kind in _TIMING or (payload is not None and kind == "artifact" and _is_timing(metadata)):
            continue
        plain = {key: value for key, value in metadata.items() if key not in _CONTEXT}
        yield (
            kind,
            normal(json.dumps(_named(plain, files), sort_keys=True)) + "\n" + normal(payload or ""),
        )


def _is_timing(metadata: dict[str, object]) -> bool:
    artifact = metadata["artifact"]
    name = artifact.get("name") if isinstance(artifact, dict) else ""
    return name in ("recompile_user_contexts",) or str(name).startswith("fx_graph_cache_")


def _split(text: str) -> Iterator[tuple[str, str | None]]:
    """(JSON, payload) of each record: payload lines begin with a tab."""
    head, payload = "", []
    for line in text.splitlines():
        if line.startswith("\t"):
            payload.append(line[1:])
            continue
        if head:
            yield head, "\n".join(payload) if payload else None
        head, payload = line[line.index("{") :] if "{" in line else "", []
    if head:
        yield head, "\n".join(payload) if payload else None


def _named(value: object, files: dict[int, str]) -> object:
    """Stacks with the names of their files, and without the frames of the recorder."""
    if isinstance(value, dict):
        return {key: _named(item, files) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    kept = [item for item in value if not (_is_frame(item) and item["name"] in _WRAPPERS)]
    return [
        {**item, "filename": files.get(item["filename"], item["filename"])}
        if _is_frame(item)
        else _named(item, files)
        for item in (kept[-_FRAMES:] if kept and _is_frame(kept[0]) else kept)
    ]


_FRAMES = 10
"""Innermost frames of a stack that are compared: torch itself cuts stacks to a number of frames,
of which the recorder's own are some."""
_WRAPPERS = ("wrapper", "tapped")
"""Names of the recorder's own frames (torchreel.recorder.attach), and of some of torch's."""


def _is_frame(value: object) -> bool:
    return isinstance(value, dict) and {"line", "name", "filename"} <= set(value)


def differences(plain: Observation, recorded: Observation) -> list[str]:
    """What differs, a line for each; empty when nothing does."""
    found = []
    if plain.status != recorded.status:
        found.append(f"exit status: {plain.status}, recorded {recorded.status}")
    if plain.stdout != recorded.stdout:
        found.append("stdout: " + _first(plain.stdout.split("\n"), recorded.stdout.split("\n")))
    if plain.log != recorded.log:
        found.append("log: " + _first(plain.log, recorded.log))
    for kind in sorted({*plain.records, *recorded.records}):
        ours, theirs = plain.records.get(kind, []), recorded.records.get(kind, [])
        if ours != theirs:
            numbers = f"{len(ours)} records, recorded {len(theirs)}: "
            found.append(f"{kind}: {numbers}" + _first(ours, theirs))
    return found


def _first(ours: list[str], theirs: list[str]) -> str:
    """The first lines that differ."""
    flat = ["\n".join(side).split("\n") for side in (ours, theirs)]
    lines = [
        line[:300]
        for line in difflib.unified_diff(*flat, lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    return " | ".join(lines[:4])


def check(command: Sequence[str], **variables: str) -> tuple[Observation, list[str]]:
    """Run a program both ways; what the plain run showed, and what differs."""
    with tempfile.TemporaryDirectory(prefix="torchreel-fidelity-") as name:
        folder = Path(name, "run")
        plain = observe(command, folder, recorded=False, **variables)
        return plain, differences(plain, observe(command, folder, recorded=True, **variables))


def main(programs: list[str]) -> int:
    """Check each program; the exit status."""
    bad = 0
    for command in [[program] for program in programs] or _all():
        plain, found = check(command)
        total = sum(plain.counts.values())
        name = " ".join([Path(command[0]).name, *command[1:]])
        print(f"{name}: {total} records, {len(plain.log)} log lines:", flush=True)
        print("\n".join(f"    {line}" for line in found) or "    the same", flush=True)
        bad += bool(found) or total == 0
    return min(bad, 1)


def _all() -> list[list[str]]:
    from tests.recorder.trace_programs import OPERATORS

    root = Path(__file__).parents[1]
    return [
        command
        for backend in ("aot_eager", "inductor")
        for command in (
            *(
                [str(root / "benchmarks/model_program.py"), name, shapes, "training", backend]
                for name in ("gpt2", "bert", "llama")
                for shapes in ("static", "dynamic")
            ),
            *(
                [str(root / "tests/recorder/trace_programs.py"), backend, name]
                for name in ("cnn", *OPERATORS)
            ),
        )
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
