"""Locks of a file system: decides if several processes can write into one SQLite file.

Lives here: whether the file system has working locks, whether other machines may see it, and the
file of its own that a process then gets. Not here: how such a file is opened (`sqlite_files`).

SQLite needs locks between processes, and memory that they share. No network file system shares
memory between machines (https://www.sqlite.org/wal.html). So without locks every process writes a
file of its own, and on a network every rank of a job does.
"""

import contextlib
import errno
import os
from functools import lru_cache
from pathlib import Path

INSTEAD_OF = "instead_of"
"""The key in `environment` under which a recording keeps the name of the store that was wanted,
where it is in a file of its own."""

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
_NETWORK = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph", "lustre", "gpfs", "beegfs",
        "orangefs", "glusterfs", "ocfs2", "gfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph",
        "fuse.s3fs", "fuse.gcsfuse", "fuse.juicefs", "fuse.cephfs", "wekafs",
    }
)  # fmt: skip
"""Types of file systems that several machines mount, as Linux names them."""


def own_file(target: str, rank: int | None) -> str:
    """Return the target, or the file of this process beside it where several can't write into
    one.
    """
    if "://" in target:
        return target
    path = Path(target)
    who = "" if rank is None else f"rank{rank}"
    if not has_locks(path.parent):
        who = "-".join(filter(None, (who, f"pid{os.getpid()}")))
        taken = str(os.getpid()) in path.stem
    else:
        taken = not who or who in path.stem or not is_on_network(path.parent)
    return target if taken else str(path.with_name(f"{path.stem}.{who}{path.suffix}"))


def own_files(target: str | Path) -> list[Path]:
    """Return the files that processes wrote for themselves, beside a target."""
    path = Path(target)
    with contextlib.suppress(OSError, ValueError):
        beside = (file for file in path.parent.iterdir() if file.suffix == path.suffix)
        begin = (f"{path.stem}.rank", f"{path.stem}.pid")
        return sorted(file for file in beside if file.name.startswith(begin))
    return []


def is_claimed(path: str | Path) -> bool:
    """Return True if `torchreel record` waits for a program that records into this file.

    Read from /proc/locks: opening and closing a file of SQLite's would give up its locks.
    """
    with contextlib.suppress(OSError, ValueError):
        found = os.stat(path)
        device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
        for line in Path("/proc/locks").read_text().splitlines():
            _, kind, _, _, _, file, *_ = line.split()  # proc_locks(5)
            if (kind, file) == ("FLOCK", f"{device}:{found.st_ino}"):
                return True
    return False


def has_locks(directory: Path) -> bool:
    """Return True if a file in that directory can be locked; True where nothing can be tried."""
    place = _existing(directory)
    try:
        return _device_has_locks(os.stat(place).st_dev, place)
    except OSError:
        return True  # opening the store will say what is wrong


@lru_cache(64)
def _device_has_locks(device: int, directory: Path) -> bool:
    """Return True if a file in the directory can be locked.

    Raises OSError where no file can be made; the next call tries again.
    """
    name = directory / f".torchreel-{os.getpid()}.lock"
    handle = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        return _can_lock(handle)
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):
            name.unlink()


def _can_lock(handle: int) -> bool:
    import fcntl

    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _NO_LOCKS
    return True


def is_on_network(directory: Path) -> bool:
    """Return True if other machines may see that directory; False where there is no telling (no
    Linux).
    """
    return type_of(directory, _mounts()) in _NETWORK


def type_of(directory: Path, mounts: str) -> str:
    """Return the type of the file system of a directory, by the text of /proc/self/mountinfo."""
    place = os.path.realpath(_existing(directory))
    found = (0, "")
    for line in mounts.splitlines():
        mount, _, source = line.partition(" - ")
        fields = mount.split()
        if len(fields) < 5 or not source:
            continue
        point = fields[4].replace("\\040", " ")
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= found[0]:  # a later mount covers an earlier one
            found = (len(point), source.split()[0])
    return found[1]


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return ""


def _existing(directory: Path) -> Path:
    """Return the directory itself, or the nearest one above it that is there."""
    absolute = directory.absolute()
    return next((place for place in (absolute, *absolute.parents) if place.is_dir()), absolute)
