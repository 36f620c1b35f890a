"""The one place of the minifier where an exception of the program under test becomes data."""

from __future__ import annotations

from types import TracebackType

from torchreel.minifier.oracle.child.stages import StageOver


class ErrorCatcher:
    """Swallows an exception of the program under test and keeps it; control flow too."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.over = False

    def __enter__(self) -> ErrorCatcher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self.over = isinstance(error, StageOver)
        self.error = error if isinstance(error, Exception) else None
        return self.over or self.error is not None
