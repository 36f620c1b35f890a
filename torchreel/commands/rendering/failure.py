"""A failure, and the signature by which it is known again, for `show` and for what follows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchreel.analysis import skipped
from torchreel.analysis.trust import needs_trust
from torchreel.commands.rendering import streams
from torchreel.commands.rendering.text import shortened
from torchreel.escaping.characters import visible_block
from torchreel.escaping.shell import command
from torchreel.store import Store, queries
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import Signature
from torchreel.store.records import Compile, Failure

# Of a message, and of the program's stack in it; --traceback shows all of it.
_LINES, _USER_LINES = 12, 40
_USER_CODE = "from user code:"
_ADVICE = "Set TORCHDYNAMO_VERBOSE=1 "
"""The beginning of the line that torch adds to every error: what it advises is recorded already."""


def print_failure(store: Store, row: Compile) -> None:
    """Print the failure of a compile, or where it was when its process died."""
    found = queries.failure_of(store, row)
    if found is None:
        _print_crash(store, row)
        return
    streams.result()
    streams.result(f"failure: {found.failure_class} in stage {_where(found)}", style="bold red")
    links = [f"{kind}: {shortened(message, 200)}".rstrip(": ") for kind, message in _chain(found)]
    for link in links:
        streams.result(f"  {link}")
    # Dynamo puts the exception of a backend into the message of its own.
    lines = [line for line in _some_lines(found.message) if line not in links]
    if any(line.strip() for line in lines):
        streams.block(visible_block("\n".join(f"    {line}" for line in lines)))
    print_signature(found.signature)


def _some_lines(message: str) -> list[str]:
    """Return the lines of a message after the first: its beginning, and the program's lines."""
    every = [line for line in message.strip().splitlines() if not line.startswith(_ADVICE)]
    user = next((n for n, line in enumerate(every) if line.strip() == _USER_CODE), len(every))
    end = len(every)
    while end and not every[end - 1].strip():
        end -= 1
    kept = [*every[1 : min(user, _LINES)], *every[user : min(end, user + _USER_LINES)]]
    left = end - 1 - len(kept)
    return [*kept, f"({left} more lines: --traceback shows all)"] if left > 0 else kept


def _print_crash(store: Store, row: Compile) -> None:
    if row.status == "crashed":
        place = queries.last_place(store, row)
        where = f" in stage {place.stage} {place.partition}".rstrip()
        streams.result()
        streams.result(f"failure: the process died{where}", style="bold red")


def _where(failure: Failure) -> str:
    return f"{failure.stage} {failure.partition}".rstrip()


def _chain(failure: Failure) -> list[tuple[str, str]]:
    """Return the types and messages of a failure's exceptions, the outermost first."""
    found = failure.chain if isinstance(failure.chain, Sequence) else []
    links = [
        (str(link.get("type")), str(link.get("message")))
        for link in found
        if isinstance(link, Mapping)
    ]
    alone = [(failure.exception_type or failure.failure_class, failure.message)]
    return links or (alone if failure.message else [])


def print_signature(signature: Signature) -> None:
    """Print a signature: the facts by which another failure is the same bug."""
    streams.result(f"signature: {signature.digest[:12]}")
    for name, text in facts(signature):
        streams.result(f"  {name:<8} {text}")


def facts(signature: Signature) -> list[tuple[str, str]]:
    """Return the parts of a signature that say something."""
    found = [
        ("class", signature.failure_class),
        ("stage", f"{signature.stage} {signature.partition}".strip()),
        ("types", " <- ".join(signature.exception_types)),
        ("frame", signature.frames[0] if signature.frames else ""),
        ("message", shortened(signature.message, 200)),
        ("signal", signature.signal or ""),
    ]
    return [(name, text) for name, text in found if text]


def as_json(failure: Failure) -> Json:
    """Return a failure as one object."""
    return {**vars(failure), "signature": failure.signature.to_json()}


def print_next(store: Store, row: Compile) -> None:
    """Print the next command for a compile: minify for a failure, else replay where possible."""
    streams.next_command(*next_words(store, row))


def trust_words(store: Store, row: Compile) -> tuple[str, ...]:
    """Return the option that a reduction of a compile needs, where it runs code of the program."""
    return ("--trust",) if needs_trust(store, row) else ()


def next_command(store: Store, row: Compile) -> str:
    """Return the command that follows on a compile, as one would type it."""
    return command(*next_words(store, row))


def next_words(store: Store, row: Compile) -> tuple[str, ...]:
    """Return the words of the command that follows on a compile."""
    address = f"{store.target}#{row.place}"
    failed = row.status in queries.FAILING or queries.failure_of(store, row) is not None
    if not queries.checkpoints(store, row):
        if failed and queries.has_frame(store, row):
            return "torchreel", "minify", address, "--trust"
        verb = skipped.verb_of(store, row) if row.status == "skipped" else None
        if verb is not None:
            return "torchreel", verb, address
        return "torchreel", "show", address, "--traceback" if failed else "--events"
    if failed and not queries.is_decomposition(store, row):
        return "torchreel", "minify", address, *trust_words(store, row)
    return "torchreel", "replay", address
