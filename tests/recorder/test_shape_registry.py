"""Which ShapeEnvs a thread looks at where a stage of its compile ends."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from torch.fx.experimental.symbolic_shapes import ShapeEnv

from torchreel.recorder.probes.shape_registry import Registry


def test_what_another_thread_works_on_is_left_to_it() -> None:
    registry, recorder = Registry(), SimpleNamespace(event_log=object(), note=lambda *_: 0)
    given: Any = recorder
    mine, its = ShapeEnv(), ShapeEnv()
    own = registry.find(given, mine)
    seen: list[list[object]] = []

    def work() -> None:
        registry.find(given, its)
        seen.append([shadow.env() for shadow in registry.recent(given)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [[its]]
    assert registry.recent(given) == [own]
    registry.find(given, its)  # a backward may be compiled in another thread than its forward
    assert [shadow.env() for shadow in registry.recent(given)] == [mine, its]
