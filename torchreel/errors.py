"""Every error that torchreel raises on purpose, and the exit status that each one means.

The message of each is one or a few sentences: what was wrong, what was found, what to do.
No other module defines an exception; the command line maps ``exit_status`` and nothing else.

    TorchreelError                1   not found, or different; the root of all below
    ├── UsageError                2   the command line, an address or an option makes no sense
    ├── RefusedError              3   we won't do this to that
    │   ├── StoreError            3   the store can't be used
    │   │   ├── NotAStore             the file is something else
    │   │   ├── NewerStore            a newer torchreel wrote it
    │   │   ├── DamagedStore          truncated, corrupted, or lying about its contents
    │   │   ├── UnreadableSource      what is to be copied can't be read
    │   │   ├── LockedStore           another process holds it, or we may not write to it
    │   │   └── MissingStore          there is nothing at that path
    │   ├── UntrustedError        3   needs --trust or --import
    │   └── UnsupportedError      3   this torch, platform or recording can't do it
    │       └── ForbiddenError        a graph of the store does what no graph may do
    ├── EnvironmentFailed         1   an environment with another torch could not be made
    ├── QueryTimeSpent            4   a statement took longer than its limit
    ├── ReplayError               1   a replay could not be carried out
    └── MinifyError               1   a reduction could not be carried out
        ├── NotReproduced         1   the case doesn't fail here
        ├── FlakyFailure          1   the case fails only sometimes
        ├── TrivialResult         1   what is left shows nothing
        └── BudgetSpent           4   out of time or tries; the best so far is saved
"""


class TorchreelError(Exception):
    """Root of the tree; ``exit_status`` is what the command line exits with."""

    exit_status: int = 1


class UsageError(TorchreelError):
    """An option, an address or a combination of them makes no sense."""

    exit_status = 2


class RefusedError(TorchreelError):
    """The request is understood and refused: unreadable, incompatible or unsafe."""

    exit_status = 3


class StoreError(RefusedError):
    """The store can't be used; nothing in it was changed."""


class NotAStore(StoreError):
    """The file exists and isn't a torchreel store."""


class NewerStore(StoreError):
    """The store was written by a newer torchreel than this one."""


class DamagedStore(StoreError):
    """The store is truncated or corrupted, or a blob isn't what its digest says."""


class UnreadableSource(StoreError):
    """The source of a copy can't be read; its target is unchanged."""


class LockedStore(StoreError):
    """Another process holds the store for longer than we wait, or it can't be written to."""


class MissingStore(StoreError):
    """There is no store at that path."""


class UntrustedError(RefusedError):
    """Continuing would run code or resolve names from the store; ``--trust`` allows it."""


class UnsupportedError(RefusedError):
    """This torch, this platform or this recording does not support the request."""


class ForbiddenError(UnsupportedError):
    """A graph of the store does what no traced graph does; nothing allows it."""


class EnvironmentFailed(TorchreelError):
    """An environment with another torch could not be made or used."""


class QueryTimeSpent(TorchreelError):
    """A statement of ``torchreel query`` took longer than its limit."""

    exit_status = 4


class ReplayError(TorchreelError):
    """A replay could not be carried out."""


class MinifyError(TorchreelError):
    """A reduction could not be carried out."""


class NotReproduced(MinifyError):
    """The recorded failure does not happen here."""


class FlakyFailure(MinifyError):
    """The recorded failure happens only sometimes."""


class TrivialResult(MinifyError):
    """The reduction ended with a case that shows nothing."""


class BudgetSpent(MinifyError):
    """The budget ended before a fixpoint; the best case so far is in the store."""

    exit_status = 4
