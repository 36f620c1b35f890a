"""`share`: from a failure in a store to a bundle that may leave, and the map that stays.

Lives here: the steps, one after the other. Called by `torchreel share`, and as `torchreel.share`.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchreel.errors import (
    DamagedStore,
    NotReproduced,
    RefusedError,
    UnsupportedError,
    UntrustedError,
    UsageError,
)
from torchreel.escaping.shell import command
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.initial_cases.failures import graphs_beside_program, starting_cases
from torchreel.minifier.minify import minify
from torchreel.minifier.options import Budget, MinifyOptions
from torchreel.minifier.oracle.worker_oracle import WorkerOracle, open_oracle
from torchreel.minifier.scripts.settings import is_code
from torchreel.minifier.storage.best_cases import best_case
from torchreel.sharing.audit.audit import AuditFinding, audit
from torchreel.sharing.bundle import Content, write_bundle
from torchreel.sharing.constructed.cases import construct
from torchreel.sharing.neutral import Neutralised, neutralised
from torchreel.sharing.pseudonyms import Pseudonyms, write_map
from torchreel.sharing.residue import Leaving, leaving, numbers_in
from torchreel.sharing.verify import Judge, Verification, verify
from torchreel.store import Store, parse, queries
from torchreel.store.failures.signature import ASKED, Signature
from torchreel.store.records import Compile, Failure

_MOST_RUNS = 40
"""Runs to find out which numbers a failure needs: a few minutes at most."""


@dataclass(frozen=True)
class ShareOptions:
    """The choices of a sharing."""

    output: Path
    map: Path | None = None
    """The path of the map of pseudonyms; beside the bundle by default."""
    force: bool = False
    minimise: float | None = None
    """Seconds for a reduction first; None shares what is there."""
    unverified: bool = False
    """True to write a bundle that does not show the failure."""
    most_runs: int = _MOST_RUNS
    say: Callable[[str], None] = field(default=lambda text: None)

    @property
    def map_path(self) -> Path:
        """Return the path of the map: the chosen one, else one beside the output."""
        return self.map or self.output.with_name(f"{self.output.stem}.map.json")


@dataclass(frozen=True)
class Shared:
    """A bundle that was written."""

    bundle: Path
    map: Path
    verification: Verification
    leaving: Leaving
    was_reduced: bool
    numbers: Neutralised
    signature: Signature
    call_nodes: int


def share(
    address: str,
    output: Path | str,
    *,
    options: ShareOptions | None = None,
    oracle: WorkerOracle | None = None,
) -> Shared:
    """Write the slice of a recording that a failure needs as a new store, and the map of names.

    The simplest case known is taken: a reduced one if there is any, else the checkpoint. It is
    built anew of operators, dtypes, sizes, strides and the config that matters; what the failure
    does not need of that goes.  Raises `NotReproduced` where the result does not fail in the same
    way any more, `UnsupportedError` where a part of the case has no form that may leave, and
    UsageError where a file would be overwritten.
    """
    chosen = replace(options or ShareOptions(Path(output)), output=Path(output))
    where = parse(address)
    _refuse_overwriting(chosen, where.store)
    with Store.open(where.store, write=chosen.minimise is not None) as store:
        row = queries.compile_at(store, where)
        failure = queries.failure_of(store, row)
        if failure is None:
            raise UsageError(
                f"{queries.without_failure(store, row)}, so there is nothing to share. If it "
                "computes something wrong, run 'torchreel minify --accuracy' first."
            )
        _refuse_failure(failure)
        if chosen.minimise is not None:
            chosen.say("reducing it first")
            _minimise(store, row, chosen.minimise, oracle)
        cases, was_reduced = _cases(store, row, failure)
    with open_oracle(oracle, failure.signature, MinifyOptions()) as judge:
        return _shared(cases, failure.signature, was_reduced, chosen, judge)


def _refuse_overwriting(options: ShareOptions, source: str) -> None:
    files = {"the bundle": options.output, "the map": options.map_path}
    if "://" not in source:
        files = {"the store": Path(source), **files}
    for (what, path), (other, its) in itertools.combinations(files.items(), 2):
        if path.resolve() == its.resolve():
            raise UsageError(
                f"{what.capitalize()} and {other} can't be one file, {path}: name another with "
                "-o or --map."
            )
    for path, what in ((options.output, "-o"), (options.map_path, "--map")):
        if path.exists() and not options.force:
            raise UsageError(
                f"{path} exists already: use {what} to write elsewhere, or --force to replace it."
            )
        if not path.absolute().parent.is_dir():
            raise UsageError(
                f"There is no folder {path.absolute().parent} to write {path.name} to."
            )


def _refuse_failure(failure: Failure) -> None:
    if failure.failure_class in ASKED:
        raise UnsupportedError(
            "What was reduced is no failure, but what a predicate or a command of yours asked for: "
            "its words would leave. Share the script of 'torchreel export' instead."
        )


def _minimise(store: Store, row: Compile, seconds: float, oracle: WorkerOracle | None) -> None:
    minify(store, row, options=MinifyOptions(limits=Budget(seconds=seconds)), oracle=oracle)


def _cases(store: Store, row: Compile, failure: Failure) -> tuple[list[Case], bool]:
    """Return the cases to try in turn, and whether a reduction made them."""
    best = best_case(store, failure, ())
    if best is not None and isinstance(best.case, Case):
        _refuse_own_backend(store, row, [best.case])
        return [best.case], True
    found: list[AnyCase] = []
    if best is not None:
        found = [*graphs_beside_program(store, row, failure), best.case]
    if not found:
        try:
            found = list(starting_cases(store, row, failure))
        except UntrustedError as error:
            raise _refused_code(store, row) from error
        except RefusedError as error:
            raise UnsupportedError(
                f"There is no graph to share: {error} Only failures behind Dynamo have one."
            ) from error
    graphs = [case for case in found if isinstance(case, Case) and not case.is_exact]
    if not graphs:
        own = "is Dynamo's own, so a program is what shows it"
        raise _refused_code(store, row, own if failure.stage == "dynamo" else _BY_PROGRAM)
    _refuse_own_backend(store, row, graphs)
    return graphs, False


def _refuse_own_backend(store: Store, row: Compile, graphs: Sequence[Case]) -> None:
    if all(is_code(case) for case in graphs):
        backend = graphs[0].backend
        what = f"is one of the backend {backend!a:.60}, which is code of the program's"
        raise _refused_code(store, row, what)


_BY_PROGRAM = "was reduced as a program, since no graph alone shows it"


def _refused_code(
    store: Store, row: Compile, what: str = "is Dynamo's own, so a program is what shows it"
) -> UnsupportedError:
    address = f"{store.target}#{row.place}"
    return UnsupportedError(
        f"The failure {what}, and nobody can tell that a part of a program is harmless. "
        f"'{command('torchreel', 'minify', address, '--trust')}' makes a script of a few lines of "
        "it: read them, and give what is yours other names, before it leaves."
    )


def _shared(
    cases: list[Case], wanted: Signature, was_reduced: bool, options: ShareOptions,
    oracle: WorkerOracle,
) -> Shared:  # fmt: skip
    case, names, judge, holds = _first_that_fails(cases, wanted, options, oracle)
    if holds:
        options.say("looking for numbers and settings that it does not need")
        numbers = neutralised(case, judge.holds, options.most_runs)
    else:
        # Nothing says which numbers it needs, so none leaves.
        numbers = neutralised(case, lambda made: True, options.most_runs)
    # What the last run showed is what leaves: that process knew nothing of the program.
    shown = judge.show(numbers.case)
    seen = shown.observed if shown.holds else None
    if seen is None and holds:
        raise NotReproduced("The case fails only sometimes: reduce it first ('torchreel minify').")
    signature = seen or _public_part(wanted)
    content = Content(numbers.case, signature, was_reduced)
    options.say("running the bundle as its reader will")
    needed, verification = _written(content, options, oracle, names, holds)
    return Shared(
        options.output, options.map_path, verification, leaving(numbers.case, signature, needed),
        was_reduced, numbers, signature, numbers.case.total_call_nodes,
    )  # fmt: skip


def _first_that_fails(
    cases: list[Case], wanted: Signature, options: ShareOptions, oracle: WorkerOracle
) -> tuple[Case, Pseudonyms, Judge, bool]:
    """Return the first constructed case that fails as recorded, else the first of all."""
    seen: list[str] = []
    first: tuple[Case, Pseudonyms, Judge] | None = None
    tried: set[str] = set()
    for case in cases:
        names = Pseudonyms()
        made = construct(case, names)
        if made.digest in tried:
            continue
        tried.add(made.digest)
        options.say(f"running {made.summary}, built of what may leave")
        oracle.look_for(wanted)
        judge = Judge(oracle, wanted, names)
        shown = judge.show(made)
        if shown.holds:
            return made, names, judge, True
        first = first or (made, names, judge)
        seen.append(f"  {made.summary}: {shown.detail}")
    if first is None or not options.unverified:
        raise NotReproduced(
            "What may leave does not show the recorded failure, so nothing was written. What "
            "happened instead:\n" + "\n".join(seen) + "\nCode of the program's does not leave: "
            "where its operator, pass or backend is what fails, no bundle can show it. Else reduce "
            "it first ('torchreel minify'), or write it nevertheless with --unverified."
        )
    return (*first, False)


def _public_part(wanted: Signature) -> Signature:
    """Return the part of a signature that may leave for a failure not seen again: class, stage."""
    return Signature(wanted.failure_class, wanted.stage, wanted.partition)


def _written(
    content: Content, options: ShareOptions, oracle: WorkerOracle, names: Pseudonyms, holds: bool
) -> tuple[tuple[str, ...], Verification]:
    """Write, verify and audit the bundle beside its place, and put it there.

    Returns the numbers in it that the failure needs: the audit finds them.
    """
    folder = options.output.absolute().parent
    with tempfile.TemporaryDirectory(prefix=".torchreel-share-", dir=folder) as place:
        draft, path = Path(place, "draft.db"), Path(place, "bundle.db")
        write_bundle(draft, content)
        needed = _needed(audit(draft).findings, content)
        write_bundle(path, replace(content, needed=needed))
        _refuse_leaks(audit(path).findings)
        verification = Verification(False, "", "it did not fail") if not holds else (
            verify(path, content.case, oracle)
        )  # fmt: skip
        if not verification.holds and not options.unverified:
            raise NotReproduced(
                "Read back from the bundle, the case does not show the failure, so nothing was "
                f"written: {verification.detail}. Write it nevertheless with --unverified."
            )
        write_map(options.map_path, names.names, options.output.name, force=options.force)
        os.replace(path, options.output)
    return needed, verification


def _needed(findings: tuple[AuditFinding, ...], content: Content) -> tuple[str, ...]:
    """Return the numbers that the audit found and that a search for neutral values had to keep."""
    tried = numbers_in(content.case)
    found = [text for one in findings if one.kind == "number" for text in one.text.split(", ")]
    return tuple(dict.fromkeys(text for text in found if text in tried))


def _refuse_leaks(findings: tuple[AuditFinding, ...]) -> None:
    if findings:
        first = findings[0]
        raise DamagedStore(
            f"The bundle was not written: the audit found {len(findings)} things in it that should "
            f"not leave, the first in {first.place}: {first.text!a:.60}. Reduce the failure first "
            "('torchreel minify')."
        )
