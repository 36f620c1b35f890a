"""The problem that a reduction solves: what it looks for, and the cases it starts with.

- `wrong_result_problem`: no failure is known; recorded graphs and frames are compared with eager
- `other_failure_problem`: another failure that an earlier reduction met
- `interestingness_problem`: a predicate or a command of the user's holds
- `recorded_problem`: the failure of a compile, as it was recorded

Not here: the cases themselves (`failures`, `interestingness`, `accuracy`). Called by `minify`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from torchreel.errors import (
    ForbiddenError,
    MinifyError,
    NotReproduced,
    TorchreelError,
    UnsupportedError,
    UntrustedError,
    UsageError,
)
from torchreel.minifier.accuracy.wrong_results import (
    find_difference,
    find_in_frames,
    find_in_program,
)
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.initial_cases.failures import starting_cases
from torchreel.minifier.initial_cases.interestingness import (
    interestingness_cases,
    interestingness_failure,
    interestingness_signature,
    options_to_repeat,
)
from torchreel.minifier.options import MinifyOptions, RunLimits
from torchreel.minifier.oracle.interface import Oracle
from torchreel.minifier.results.reductions import Listener
from torchreel.minifier.scripts.settings import is_code
from torchreel.minifier.source.recorded_program import recorded_program
from torchreel.minifier.storage.added_failures import add_failure
from torchreel.minifier.storage.best_cases import best_case
from torchreel.minifier.storage.other_failures import find_other_failure
from torchreel.replay.imposed.facts import facts_of
from torchreel.store import queries
from torchreel.store.addressing import Address
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.hang_limit import recorded_limit
from torchreel.store.failures.signature import (
    ASKED,
    NEEDS_FRAME,
    Signature,
    wrong_result_signature,
)
from torchreel.store.records import Compile, Failure

Starts = tuple[Sequence[AnyCase], Failure]
"""The cases to try in turn, and the failure in the store that they belong to."""


@dataclass(frozen=True)
class Problem:
    """A signature to look for, and the way to the cases that may show it."""

    signature: Signature
    options: MinifyOptions
    """The user's, completed by what the failure says."""
    find_starts: Callable[[Oracle], Starts]
    """Gives the starts; runs cases where no failure is known yet."""
    accelerator: Mapping[str, Json] | None = None
    """The GPUs of the recorded machine, where it had some."""
    otherwise: Starts | UnsupportedError | None = None
    """The start where those did not show it: the program itself, or why it is not to be had.

    None where it has been tried already, or may not be run.
    """

    @property
    def is_for_command(self) -> bool:
        """Return True if a command of the user's judges the cases."""
        return self.signature.failure_class == "script"

    def starts_otherwise(self, error: TorchreelError) -> Callable[[Oracle], Starts]:
        """Return the way to the program itself, after a reduction could not start for `error`.

        Raises that where there is no such way, with the reason.
        """
        starts = self.otherwise
        if starts is None or isinstance(error, ForbiddenError):
            raise error
        if isinstance(starts, UnsupportedError):
            raise _with_reason(error, starts) from error
        return _always(starts)

    @property
    def has_another_way(self) -> bool:
        """Return True if there is another start where the first ones do not show the failure."""
        return isinstance(self.otherwise, tuple)

    @property
    def other_way(self) -> str:
        """Return a phrase for that start."""
        is_graph = isinstance(self.otherwise, tuple) and isinstance(self.otherwise[0][0], Case)
        return "the recorded graph" if is_graph else "the program itself"


def problem_of(
    store: Store,
    compile: Compile | None,
    options: MinifyOptions,
    listener: Listener | None,
    *,
    accuracy: bool,
) -> Problem:
    """Return the problem that the options name; without any, the recorded failure.

    Raises UsageError where there is no failure, and as the functions below do.
    """
    if accuracy:
        return wrong_result_problem(store, compile, options, listener)
    if options.other_failure is not None:
        return other_failure_problem(store, options.other_failure, options)
    wanted = interestingness_signature(options)
    if wanted is not None:
        compile = compile or queries.compile_at(store, Address(store.target))
        failure = interestingness_failure(store, compile, wanted)
        return interestingness_problem(store, compile, failure, options)
    compile, failure = _failing(store, compile)
    if failure.failure_class in ASKED:
        return interestingness_problem(store, compile, failure, options_to_repeat(failure, options))
    return recorded_problem(store, compile, failure, options, listener)


def wrong_result_problem(
    store: Store, compile: Compile | None, options: MinifyOptions, listener: Listener | None
) -> Problem:
    """Look for a graph that is compiled wrongly; else for a frame that Dynamo traces wrongly.

    Raises UsageError where something else is to say what is interesting.
    """
    if options.command or options.predicate is not None:
        raise UsageError(
            "--accuracy compares what is in the store with eager mode, by itself: leave out the "
            "command after '--', or --predicate. A command judges scripts, without --accuracy; a "
            "program is recorded first, with 'torchreel record --frames all -- python program.py'."
        )

    def find(oracle: Oracle) -> Starts:
        try:
            case, failure = find_difference(
                store, compile, options.imports, oracle, options.comparator, listener
            )
        except (NotReproduced, UnsupportedError, UntrustedError) as error:
            return find_frame(error, oracle)
        if options.trust and case.opens_levels:
            with suppress(NotReproduced, UnsupportedError):
                program = find_in_program(store, compile, options, oracle, listener)
                if program[0].call_nodes < case.call_nodes:
                    return [program[0]], program[1]
        return [case], failure

    def find_frame(error: TorchreelError, oracle: Oracle) -> Starts:
        if isinstance(error, (ForbiddenError, UntrustedError)) and not options.trust:
            raise error
        if not options.trust:
            raise type(error)(
                f"{error}\nWhat Dynamo itself makes of a frame (its Python state among it) was not "
                "compared: record with --frames all, and add --trust, which runs the frames."
            ) from error
        try:
            return find_in_code(store, compile, options, oracle, listener)
        except (NotReproduced, UnsupportedError) as other:
            raise type(other)(f"{error}\n{other}") from other

    return Problem(wrong_result_signature("values"), options, find)


def find_in_code(
    store: Store,
    compile: Compile | None,
    options: MinifyOptions,
    oracle: Oracle,
    listener: Listener | None,
) -> Starts:
    """Return the frame that Dynamo traces wrongly, else the program that does something else.

    Raises NotReproduced, or UnsupportedError, where neither does.
    """
    try:
        case, failure = find_in_frames(store, compile, options, oracle, listener)
    except (NotReproduced, UnsupportedError) as error:
        try:
            case, failure = find_in_program(store, compile, options, oracle, listener)
        except (NotReproduced, UnsupportedError) as other:
            raise type(other)(f"{error}\n{other}") from other
    return [case], failure


def other_failure_problem(store: Store, number: int, options: MinifyOptions) -> Problem:
    """Reduce another failure that a reduction met, as a failure of the same compile."""
    found = find_other_failure(store, number, trust=options.trust)
    wanted = found.row.signature
    failure = add_failure(store, found.owner, wanted, "met while another failure was reduced")
    start = found.case.with_imports(options.imports)
    return Problem(wanted, options, lambda oracle: ([start], failure))


def interestingness_problem(
    store: Store, compile: Compile, failure: Failure, options: MinifyOptions
) -> Problem:
    """Reduce a compile for which a predicate or a command holds."""
    wanted = failure.signature
    starts = interestingness_cases(store, compile, wanted, options.imports)
    return Problem(wanted, options, lambda oracle: (starts, failure))


def recorded_problem(
    store: Store,
    compile: Compile,
    failure: Failure,
    options: MinifyOptions,
    listener: Listener | None,
) -> Problem:
    """Reduce the failure of a compile; a frame that left something wrong is looked for again."""
    if failure.failure_class == "wrong_result" and failure.stage in NEEDS_FRAME:

        def find(oracle: Oracle) -> Starts:
            return find_in_code(store, compile, options, oracle, listener)

        return Problem(failure.signature, options, find)

    find_starts, recorded = _starts_of(store, compile, failure, options)
    otherwise = _program(store, compile, failure, options) if options.trust else None
    if (
        isinstance(otherwise, tuple)
        and recorded is not None
        and _begins_with_program(store, recorded, otherwise, options)
    ):
        find_starts, otherwise = _always(otherwise), recorded
    options = replace(options, bounds=_limits_for(failure, options.bounds))
    accelerator = facts_of(store, compile).accelerator
    return Problem(
        failure.signature,
        options,
        find_starts,
        accelerator,
        otherwise,
    )


def _program(
    store: Store, compile: Compile, failure: Failure, options: MinifyOptions
) -> Starts | UnsupportedError:
    try:
        return recorded_program(store, compile, options), failure
    except UnsupportedError as error:
        return error


def _always(starts: Starts) -> Callable[[Oracle], Starts]:
    return lambda oracle: starts


def _starts_of(
    store: Store, compile: Compile, failure: Failure, options: MinifyOptions
) -> tuple[Callable[[Oracle], Starts], Starts | None]:
    """Return a function that gives the starts, and also the starts if they are known already.

    Without trust, an error is raised at once. With trust, it is raised only when the function is
    called: until then, the program itself may be another way.
    """
    try:
        starts = starting_cases(store, compile, failure, options)
    except (UnsupportedError, UntrustedError, MinifyError) as error:
        if not options.trust:
            raise
        known = error

        def refuse(oracle: Oracle) -> Starts:
            raise known

        return refuse, None
    own = [case for case in starts if isinstance(case, Case) and is_code(case)]
    if own and not options.trust:
        raise UntrustedError(
            f"The backend {own[0].backend!r:.80} is code of the program: add --trust to run it, or "
            "name the module that defines it with --import MODULE."
        )
    return _always((starts, failure)), (starts, failure)


def _begins_with_program(
    store: Store, recorded: Starts, program: Starts, options: MinifyOptions
) -> bool:
    """Return True if the program is tried before its graph.

    This is so for a backend that is code, because no script can name it. It is also so if the graph
    has calls of torch.func's own: they open and close levels, and can only go together, where the
    program has a few words. And it is so if an earlier reduction went on from the program: the
    graph did not show the failure.
    """
    starts, failure = recorded
    graphs = [case for case in starts if isinstance(case, Case)]
    if any(map(is_code, graphs)):
        return True
    if any(case.opens_levels for case in graphs):
        return program[0][0].call_nodes < graphs[0].call_nodes
    if isinstance(starts[0], SourceCase):
        return False
    best = best_case(store, failure, options.imports)
    return best is not None and isinstance(best.case, SourceCase)


def _with_reason(error: TorchreelError, more: UnsupportedError) -> TorchreelError:
    return type(error)(f"{error}\nThe program itself was not tried: {more}.")


def _failing(store: Store, compile: Compile | None) -> tuple[Compile, Failure]:
    """Return a compile (left out: the latest that failed) with its failure."""
    compile = compile or queries.latest_failing(store)
    if compile is None:
        raise UsageError(f"{store.target} has no failing compile: there is nothing to minify.")
    failure = queries.failure_of(store, compile)
    if failure is None:
        raise UsageError(
            f"{queries.without_failure(store, compile)}. If one computed something wrong, use "
            "--accuracy."
        )
    return compile, failure


def _limits_for(failure: Failure, limits: RunLimits) -> RunLimits:
    """Return the limits of a run; a hang is recognised after as long as in the recording."""
    if failure.failure_class != "hang" or limits.seconds is not None:
        return limits
    return replace(limits, seconds=recorded_limit(failure.message))
