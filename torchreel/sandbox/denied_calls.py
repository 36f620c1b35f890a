"""The system calls that are denied, by their numbers on the processors that we know.

From the kernel's headers (<asm/unistd_64.h>, <asm-generic/unistd.h>): a number never changes. A
test compares them with the headers of the machine. Used by `system_calls` alone.
"""

from __future__ import annotations

from collections.abc import Mapping

# AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64 of <linux/audit.h>.
ARCHITECTURES: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""By machine, in the order of the numbers."""
LAST_KNOWN = 462
"""The highest number that may be called: mseal, of Linux 6.10."""

Numbers = tuple[int | None, int | None]

_DENIED: Mapping[str, Numbers] = {
    # sockets: those that are there stay usable
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    # work that the kernel does where no filter looks
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # memory, descriptors and scheduling of other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # a group or session of one's own, which nobody would end with the child
    "setsid": (112, 157),
    "setpgid": (109, 154),
    # what other processes of the user share
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    # programs that have no path, and so no rule
    "execveat": (322, 281),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # attributes of files, which Landlock knows nothing of
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "utime": (132, None),
    "utimes": (235, None),
    "utimensat": (280, 88),
    "futimesat": (261, None),
    # the machine
    "mount": (165, 40),
    "umount2": (166, 39),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setns": (308, 268),
    "unshare": (272, 97),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "syslog": (103, 116),
    "open_by_handle_at": (304, 265),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "vhangup": (153, 58),
    "fanotify_init": (300, 262),
}
_FOR_OTHERS: Mapping[str, Numbers] = {
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
}
_SIGNALS: Mapping[str, Numbers] = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}
_LOOKED_AT: Mapping[str, Numbers] = {
    "socketpair": (53, 199),
    "clone": (56, 220),
    "clone3": (435, 435),
    "ioctl": (16, 29),
    "execve": (59, 221),
    "seccomp": (317, 277),
}

DENIED = tuple(_DENIED)
"""Denied whatever the arguments."""
FOR_OTHER_PROCESSES = tuple(_FOR_OTHERS)
"""Denied where the first argument is another process."""
SIGNALS = tuple(_SIGNALS)
"""The same, where nothing else keeps signals inside."""
NUMBERS: Mapping[str, Numbers] = {**_DENIED, **_FOR_OTHERS, **_SIGNALS, **_LOOKED_AT}
