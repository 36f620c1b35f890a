"""The ShapeEnvs of the recording under way, by number; none is kept alive.

Lives here: who has a `Shadow`.  Not here: what it sees (`shape_state`).
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from torchreel.recorder.probes.shape_state import Shadow

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

_RECENT = 8
"""ShapeEnvs that a thread looks at where a stage ends: none works on more than a few at a time, and
a process that has compiled for weeks may hold thousands.  Those that another thread works on are
left to it: what it changes is no part of the compile of this one."""


class Registry:
    """The shadows of one recording."""

    def __init__(self) -> None:
        self._event_log: object = None
        self._shadows: dict[int, Shadow] = {}
        self._recent: dict[int, tuple[Shadow, int]] = {}
        """With the thread that last worked on it."""
        self._count = 0

    def find(self, recorder: Recorder, env: Any) -> Shadow:
        """Return the shadow of a ShapeEnv; a new recording (also after a fork) numbers them
        anew.
        """
        key = id(env)
        shadow = self._shadows.get(key)
        if shadow is None or self._event_log is not recorder.event_log or shadow.env() is not env:
            shadow = self._add(recorder, env)
        known, thread = self._recent.get(key), get_ident()
        if known is None or known[1] != thread:
            self._remember(key, shadow, thread)
        return shadow

    def _add(self, recorder: Recorder, env: Any) -> Shadow:
        if self._event_log is not recorder.event_log:
            self.__init__()  # type: ignore[misc]
            self._event_log = recorder.event_log
        key, self._count = id(env), self._count + 1
        shadow = Shadow(recorder, env, self._count, lambda _: self._forget(key))
        self._shadows[key] = shadow
        self._recent.pop(key, None)
        return shadow

    def _forget(self, key: int) -> None:
        self._shadows.pop(key, None)
        self._recent.pop(key, None)

    def _remember(self, key: int, shadow: Shadow, thread: int) -> None:
        self._recent.pop(key, None)
        self._recent[key] = shadow, thread
        mine = [one for one, (_, owner) in tuple(self._recent.items()) if owner == thread]
        if len(mine) > _RECENT:
            self._recent.pop(mine[0], None)

    def recent(self, recorder: Recorder) -> list[Shadow]:
        """Return the shadows of this recording that this thread last began to work with."""
        if self._event_log is not recorder.event_log:
            return []
        thread = get_ident()
        return [shadow for shadow, owner in tuple(self._recent.values()) if owner == thread]


registry = Registry()


def shadow_of(recorder: Recorder, env: Any) -> Shadow:
    """Return the shadow of a ShapeEnv, in the recording under way."""
    return registry.find(recorder, env)
