"""Tells an exception that says nothing of a case: a program that torch started was killed.

The kernel kills a C++ compiler where memory is short, and anybody may kill one. Lives here: finding
that in the chain of an exception. Called by the runners.
"""

from __future__ import annotations

import re
import signal
import subprocess

from torchreel.store.failures.raised import lineage
from torchreel.store.failures.signature import signal_name

_SENT = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that come from outside; the others, a program brings upon itself."""
_SAID = re.compile(
    # GCC of a program that it has started itself, Clang, and an exception of a worker as text
    r"(?:Killed|Terminated|Interrupt|Hangup) signal terminated program [\w.+-]+"
    r"|unable to execute command: (?:Killed|Terminated)"
    r"|died with <Signals\.SIG(?:KILL|TERM|INT|HUP): \d+>"
)


def killed_program(error: BaseException) -> str:
    """Return a note on the killed program that an exception comes from; '' if there is none."""
    for one in lineage(error):
        if isinstance(one, subprocess.CalledProcessError) and -one.returncode in _SENT:
            return f"a program that was started was killed ({signal_name(one.returncode)})"
        if said := _SAID.search(str(one)):
            return f"a program that was started was killed ({said[0]})"
    return ""
