"""Finds out if the process that wrote a recording still lives.

A process id alone can't say: ids are used again, and a store travels. So a recorder may write
`process_identity()` into its environment rows (key `PROCESS`), and a reader compares.
Used by `queries` (to show the truth) and `post_mortem` (to write it down).
"""

import os
from pathlib import Path

PROCESS = "process"
"""The key in `environment` under which a recorder keeps `process_identity()`."""


def machine_identity() -> str | None:
    """Return boot and pid namespace, in which the id of a process is valid; None if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def process_identity(pid: int | None = None) -> str | None:
    """Boot, pid namespace and start time of a process (by default this one); None if unknown.

    Linux only: read from /proc. The text is compared for equality and means nothing by itself.
    """
    directory = Path("/proc", str(os.getpid() if pid is None else pid))
    machine = machine_identity()
    try:
        # The second field of stat is the command in parentheses and may itself hold spaces; the
        # 22nd, counted from 1, is the start time in clock ticks since boot (man 5 proc).
        after_command = directory.joinpath("stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if machine is None else f"{machine} {after_command[19]}"


def is_alive(pid: int, identity: str | None) -> bool:
    """Return True if the process that had this id (and identity, when one was kept) still runs."""
    if not _exists(pid):
        return _elsewhere(identity)
    return identity is None or identity == process_identity(pid) or _elsewhere(identity)


def is_of_here(identity: str | None) -> bool:
    """Return True for a process of this boot and pid namespace, where its id is valid."""
    machine = machine_identity()
    return identity is not None and machine is not None and identity.startswith(f"{machine} ")


def _elsewhere(identity: str | None) -> bool:
    """Return True if it ran in another container of this machine, whose process ids say nothing
    here.
    """
    here = process_identity()
    if identity is None or here is None:
        return False
    boot, namespace, _ = here.split(" ")
    return identity.startswith(f"{boot} ") and not identity.startswith(f"{boot} {namespace} ")


def _exists(pid: int) -> bool:
    # 0 and negative numbers mean groups of processes, and a stranger's store may hold any number
    if not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Return True for a zombie: a process that has ended, and runs no code any more."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False
