"""A seccomp filter: the system calls that a confined process may not make.

Lives here: the filter as a program of the kernel's packet filter, and installing it in all threads.
The numbers of the calls: `denied_calls`. Written out because the one library for it wants
libseccomp on the machine (see docs/dependencies.md). Called by `confinement`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from functools import cache

from torchreel.sandbox.denied_calls import (
    ARCHITECTURES,
    DENIED,
    FOR_OTHER_PROCESSES,
    LAST_KNOWN,
    NUMBERS,
    SIGNALS,
)

# Of <linux/bpf_common.h>, <linux/seccomp.h> and <linux/prctl.h>.
_LOAD, _EQUAL, _GREATER, _ANY, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_GET_SECCOMP, _SET_FILTER, _ALL_THREADS = 21, 1, 1

_DATAGRAM, _KIND_OF_SOCKET, _UNIX = 2, 0xF, 1
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET.
_NAMESPACES = 0x7E020000
# What is typed into a terminal, a console's commands, and line disciplines.
_TERMINALS = (0x5412, 0x541C, 0x541D, 0x5423)
# Attributes of files, which can be set through a descriptor for reading: the types 'f' and 'X'.
_ATTRIBUTES = (ord("f") << 8, ord("X") << 8)
_TYPE = 0xFF00

Instruction = tuple[int, int, int, int]
"""Operation, instructions to skip if true, and if false, and a number."""


@cache
def is_available() -> bool:
    """Return True if this kernel has filters, the processor is one we know, and nobody forbids
    them.
    """
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURES:
        return False
    # An invalid address tells: a kernel that has filters fails to read one there.
    libc = _libc()
    failed = libc.syscall(NUMBERS["seccomp"][_column()], _SET_FILTER, 0, None) == -1
    return failed and ctypes.get_errno() == errno.EFAULT


def restrict(*, programs: bool, signals: bool) -> None:
    """Install the filter in all threads of this process.

    `programs`: whether it may start any. `signals`: whether something else keeps its signals from
    other processes. Raises OSError where the kernel refuses.
    """
    code = instructions(programs=programs, signals=signals, pid=os.getpid())
    buffer = (_Instruction * len(code))(*(_Instruction(*each) for each in code))
    program = _Program(len(code), ctypes.cast(buffer, ctypes.POINTER(_Instruction)))
    number = NUMBERS["seccomp"][_column()]
    result = _libc().syscall(number, _SET_FILTER, _ALL_THREADS, ctypes.byref(program))
    if result > 0:
        raise OSError(errno.EBUSY, f"thread {result} has a seccomp filter of its own")
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")


class _Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("true", ctypes.c_uint8),
        ("false", ctypes.c_uint8),
        ("number", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("code", ctypes.POINTER(_Instruction))]


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _column() -> int:
    return list(ARCHITECTURES).index(platform.machine())


# -- the filter -----------------------------------------------------------------------------------


def instructions(*, programs: bool, signals: bool, pid: int) -> list[Instruction]:
    """Return the whole filter, for the processor of this machine."""
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, ARCHITECTURES[platform.machine()]),
        *_fail(errno.EPERM),  # the calls of 32 bits have other numbers
        (_LOAD, 0, 0, _NUMBER),
        # What is newer than this table, and x32's: who calls it has to manage without.
        (_GREATER, 0, 1, LAST_KNOWN),
        *_fail(errno.ENOSYS),
        *_on("clone3", _fail(errno.ENOSYS)),  # its flags can't be looked at; `clone` has the same
        *_denied([*DENIED, *(() if programs else ("execve",))]),
        *_on("socketpair", _unless_stream()),
        *_on("clone", _if_any(0, _NAMESPACES)),
        *_on("ioctl", _if_ioctl()),
        *(found for name in FOR_OTHER_PROCESSES for found in _on(name, _unless_first((0, pid)))),
        *(() if signals else (f for name in SIGNALS for f in _on(name, _unless_first((pid,))))),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _fail(number: int) -> list[Instruction]:
    return [(_RETURN, 0, 0, _ERROR | number)]


def _denied(names: Sequence[str]) -> Iterator[Instruction]:
    for name in names:
        yield from _on(name, _fail(errno.EPERM))


def _on(name: str, then: Sequence[Instruction]) -> list[Instruction]:
    """Do something for one call; what leaves the accumulator changed has to load it again."""
    number = NUMBERS[name][_column()]
    return [] if number is None else [(_EQUAL, 0, len(then), number), *then]


def _argument(place: int) -> Instruction:
    """Load the lower half of an argument: the upper one is not looked at by the calls in here."""
    return (_LOAD, 0, 0, _FIRST_ARGUMENT + 8 * place)


def _unless_stream() -> list[Instruction]:
    """Return the test for a new socket: a Unix socket, and no datagrams.

    Datagrams could be sent to any socket that has a path.
    """
    return [
        _argument(0), (_EQUAL, 1, 0, _UNIX), *_fail(errno.EPERM),
        _argument(1), (_AND, 0, 0, _KIND_OF_SOCKET), (_EQUAL, 0, 1, _DATAGRAM),
        *_fail(errno.EPERM), (_RETURN, 0, 0, _ALLOW),
    ]  # fmt: skip


def _if_any(place: int, bits: int) -> list[Instruction]:
    return [_argument(place), (_ANY, 0, 1, bits), *_fail(errno.EPERM), (_RETURN, 0, 0, _ALLOW)]


def _if_ioctl() -> list[Instruction]:
    tests: list[Instruction] = [_argument(1)]
    for number in _TERMINALS:
        tests += [(_EQUAL, 0, 1, number), *_fail(errno.EPERM)]
    tests.append((_AND, 0, 0, _TYPE))
    for number in _ATTRIBUTES:
        tests += [(_EQUAL, 0, 1, number), *_fail(errno.EPERM)]
    return [*tests, (_RETURN, 0, 0, _ALLOW)]


def _unless_first(allowed: Sequence[int]) -> list[Instruction]:
    """Return instructions that allow a call only with one of these as the first argument."""
    tests: list[Instruction] = [_argument(0)]
    for number in allowed:
        tests += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    return [*tests, *_fail(errno.EPERM)]
