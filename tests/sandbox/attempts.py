"""Things that a confined process must not do, each as the Python that tries to do it.

Run as `python attempts.py NAME CONFINE FOLDER OUTSIDE PORT`, without torch. Exit status 0 means
that it was done, 13 that it was denied.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from torchreel import sandbox
from torchreel.sandbox.system_calls import NUMBERS, _column

folder = outside = Path()
port = 0
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(name: str, *arguments: object) -> int:
    number = NUMBERS[name][_column()]
    result = libc.syscall(number, *arguments)
    if result == -1 and ctypes.get_errno() in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        raise PermissionError(ctypes.get_errno(), name)
    return int(result)


def write_outside() -> None:
    (outside / "new").write_text("x")


def overwrite() -> None:
    (outside / "store.db").write_text("x")


def truncate() -> None:
    os.truncate(outside / "store.db", 0)


def truncate_by_opening() -> None:
    os.close(os.open(outside / "store.db", os.O_RDONLY | os.O_TRUNC))


def remove() -> None:
    (outside / "store.db").unlink()


def rename_out() -> None:
    (folder / "mine").write_text("x")
    (folder / "mine").rename(outside / "store.db")


def rename_in() -> None:
    (outside / "store.db").rename(folder / "theirs")


def hard_link() -> None:
    try:
        os.link(outside / "store.db", folder / "theirs")
    except OSError as error:  # the kernel says that folders are of different file systems
        raise PermissionError(error.errno, "link") from error
    (folder / "theirs").write_text("x")


def symbolic_link() -> None:
    (folder / "theirs").symlink_to(outside / "store.db")


def through_a_link_that_was_there() -> None:
    (folder / "link").write_text("x")


def make_folder() -> None:
    (outside / "new").mkdir()


def make_pipe() -> None:
    os.mkfifo(folder / "pipe")


def change_mode() -> None:
    (outside / "store.db").chmod(0o777)


def change_mode_by_descriptor() -> None:
    descriptor = os.open(outside / "store.db", os.O_RDONLY)
    os.fchmod(descriptor, 0o777)


def change_times() -> None:
    os.utime(outside / "store.db", (1, 1))


def change_flags() -> None:
    """FS_IOC_SETFLAGS: no file system has to know it."""
    descriptor = os.open(outside / "store.db", os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, 0x40086602, bytes(8))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            raise


def connect() -> None:
    socket.create_connection(("127.0.0.1", port)).close()


def send_datagram() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port))


def listen() -> None:
    socket.create_server(("127.0.0.1", 0)).close()


def connect_to_path() -> None:
    socket.socket(socket.AF_UNIX).connect(str(outside / "socket"))


def datagram_pair() -> None:
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)


def netlink() -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()


def start_true() -> None:
    subprocess.run(["/bin/true"], check=True)


def start_shell() -> None:
    if os.system(f"echo x > {outside}/new"):
        raise PermissionError(errno.EACCES, "sh")


def start_python() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def replace_process() -> None:
    os.execv("/bin/true", ["true"])


def fork_and_start() -> None:
    pid = os.fork()
    if pid == 0:
        try:
            os.execv("/bin/true", ["true"])
        except PermissionError:
            os._exit(13)
    if os.waitpid(pid, 0)[1]:
        raise PermissionError(errno.EACCES, "execv")


def spawn() -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def start_copy() -> None:
    shutil.copyfile("/bin/true", folder / "true")
    (folder / "true").chmod(0o755)
    subprocess.run([folder / "true"], check=True)


def start_from_memory() -> None:
    descriptor = os.memfd_create("program")
    os.write(descriptor, Path("/bin/true").read_bytes())
    os.execv(f"/proc/self/fd/{descriptor}", ["true"])


def start_by_descriptor() -> None:
    descriptor = os.open("/bin/true", os.O_RDONLY)
    arguments = (ctypes.c_char_p * 2)(b"true", None)
    call("execveat", descriptor, b"", arguments, None, 0x1000)


def signal_parent() -> None:
    os.kill(os.getppid(), 0)


def signal_everybody() -> None:
    """The signal 0 does nothing."""
    os.kill(1, 0)


def trace_parent() -> None:
    if libc.ptrace(0x4206, os.getppid(), 0, 0):  # PTRACE_SEIZE
        raise PermissionError(ctypes.get_errno(), "ptrace")


def write_memory_of_parent() -> None:
    call("process_vm_writev", os.getppid(), None, 0, None, 0, 0)


def open_memory_of_parent() -> None:
    Path(f"/proc/{os.getppid()}/mem").open("r+b").close()


def open_own_memory() -> None:
    Path("/proc/self/mem").open("r+b").close()


def read_environment_of_parent() -> None:
    Path(f"/proc/{os.getppid()}/environ").read_bytes()


def limit_parent() -> None:
    resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)


def type_into_terminal() -> None:
    fcntl.ioctl(0, 0x5412, b"x")  # TIOCSTI


def type_into_terminal_by_a_large_number() -> None:
    """The kernel looks at the lower half of the number alone."""
    if libc.ioctl(0, ctypes.c_ulong(1 << 32 | 0x5412), b"x"):
        raise PermissionError(ctypes.get_errno(), "TIOCSTI")


def read_home() -> None:
    (Path.home() / "secret").read_text()


def read_terminal() -> None:
    os.close(os.open(os.ttyname(0), os.O_RDONLY | os.O_NOCTTY))


def new_namespace() -> None:
    call("unshare", 0x10000000)


def namespace_by_clone() -> None:
    pid = call("clone", 0x10000000 | signal.SIGCHLD, None, None, None, None)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def shared_memory() -> None:
    call("shmget", 0, 4096, 0o1600)


def ring() -> None:
    call("io_uring_setup", 1, None)


def programs_in_the_kernel() -> None:
    call("bpf", 99, None, 0)


def keys() -> None:
    call("keyctl", 0, -3, 0)


def page_faults() -> None:
    call("userfaultfd", -1)


def session() -> None:
    os.setsid()


def group() -> None:
    os.setpgid(0, 0)


NAMES = [
    name
    for name, found in list(globals().items())
    if callable(found) and getattr(found, "__module__", None) == __name__ and name != "call"
]
"""Of all attempts."""


def main() -> None:
    global folder, outside, port
    name, confine, folder_name, outside_name, number = sys.argv[1:]
    folder, outside, port = Path(folder_name), Path(outside_name), int(number)
    attempt = globals()[name]
    if confine != "no":
        programs = sandbox.cpp_compiler() if confine == "compiler" else ()
        assert not sandbox.confine(sandbox.Confinement(folder, programs))
        assert threading.active_count() == 1
    try:
        attempt()
    except PermissionError:
        sys.exit(13)


if __name__ == "__main__":
    main()
