"""Reductions without a recorded failure: a predicate or a command says what is interesting.

Lives here: the signature, the cases to start with, and the failure in the store that stands for the
question, so that the same reduction is found again. Called by `problems`.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from torchreel.errors import UnsupportedError, UsageError
from torchreel.minifier.cases.case import Case, Harness
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.oracle.predicates import parse_predicate
from torchreel.minifier.storage.added_failures import add_failure
from torchreel.replay.imposed.documents import document
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.failures.signature import (
    ASKED,
    Signature,
    predicate_signature,
    script_signature,
)
from torchreel.store.records import Compile, Failure

# With a predicate the cheapest way is tried first; a command sees what its script does.
_HARNESSES: dict[str, tuple[Harness, ...]] = {
    "predicate": ("compile", "train"),
    "script": ("run", "train"),
}


def interestingness_signature(options: MinifyOptions) -> Signature | None:
    """Return the signature for a predicate or a command; None without.  Raises UsageError."""
    if options.predicate is not None and options.command:
        raise UsageError("A predicate and a command: only one can say what is interesting.")
    if options.predicate is not None:
        return predicate_signature(str(parse_predicate(options.predicate)))
    return script_signature(shlex.join(options.command)) if options.command else None


def interestingness_failure(store: Store, compile: Compile, wanted: Signature) -> Failure:
    """Return the failure that stands for the question in the store."""
    return add_failure(store, compile, wanted, wanted.message)


def options_to_repeat(failure: Failure, options: MinifyOptions) -> MinifyOptions:
    """Return the options for a failure that a predicate found before, and that is named again.

    Raises UsageError for a command: what a store holds is never executed.
    """
    if failure.failure_class not in ASKED:
        return options
    if failure.failure_class == "script":
        raise UsageError(
            "This was reduced for a command, and no command is taken from a store: name it again, "
            "as in 'torchreel minify ADDRESS -- ./check.sh'."
        )
    question = failure.signature.message
    if not all(map(_is_quick, _QUOTED.findall(question))):
        raise UsageError(
            "This was reduced for a predicate whose regular expression may take for ever, and such "
            "a one is not taken from a store: name it again with --predicate."
        )
    return replace(options, predicate=question)


_QUOTED = re.compile(r'"((?:\\"|[^"])*+)"')
_REPEATS = re.compile(r"(?<!\\)[*+{]")
_REPEATED_GROUP = re.compile(r"(?<!\\)\)[*+{?]|\\[1-9]|\(\?P=")
_MOST_REPEATS = 2


def _is_quick(regex: str) -> bool:
    """Return True for a regular expression with few repetitions, and none of a group."""
    few = len(_REPEATS.findall(regex)) <= _MOST_REPEATS
    return few and _REPEATED_GROUP.search(regex) is None


def interestingness_cases(
    store: Store, compile: Compile, wanted: Signature, imports: tuple[str, ...]
) -> list[Case]:
    """Return the cases to try in turn: lean, then exact, first with the least that is done with
    them.
    """
    rows = [row for row in queries.checkpoints(store, compile) if row.entry == "graph"]
    if not rows:
        raise UnsupportedError(
            f"The compile {compile.place} has no graph in the store, so there is nothing to reduce."
        )
    doc = document(store, compile, rows[-1])
    return [
        Case.from_checkpoint(doc, harness, imports=imports, lean=lean)
        for harness in _HARNESSES[wanted.failure_class]
        for lean in (True, False)
    ]
