"""Whether the process behind a recording lives: ids are used again, and stores travel."""

import os
import subprocess
import sys

import pytest

from torchreel.store.processes.liveness import is_alive, process_identity

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_this_process_lives() -> None:
    assert is_alive(os.getpid(), process_identity())
    assert is_alive(os.getpid(), None)


def test_a_process_that_ended_does_not() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = process_identity(process.pid)
    assert is_alive(process.pid, identity)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    # killed, and not waited for yet
    assert not is_alive(process.pid, identity)
    process.communicate()
    assert not is_alive(process.pid, identity)
    assert not is_alive(process.pid, None)


def test_another_process_with_the_same_id_is_not_it() -> None:
    boot, namespace, start = (process_identity() or "").split(" ")
    assert not is_alive(os.getpid(), f"{boot} {namespace} {int(start) - 1}")


def test_a_process_of_another_machine_is_gone() -> None:
    _, namespace, start = (process_identity() or "").split(" ")
    assert not is_alive(os.getpid(), f"another-boot {namespace} {start}")


def test_a_process_in_another_container_is_given_the_benefit_of_the_doubt() -> None:
    boot, _, _ = (process_identity() or "").split(" ")
    assert is_alive(os.getpid(), f"{boot} pid:[1] 5")
    assert is_alive(2**30, f"{boot} pid:[1] 5")


@pytest.mark.parametrize("pid", [0, -1, 2**31, 2**70])
def test_what_is_no_process_id_is_dead(pid: int) -> None:
    assert not is_alive(pid, None)
