"""Runs a program under a seccomp filter that refuses system calls: what a kernel without them, or a
container, answers. The kernel itself refuses; nothing is faked."""
import ctypes
import platform
import struct

SAME_EVERYWHERE = {"open_tree": 428, "move_mount": 429, "fsopen": 430, "pidfd_open": 434,
                   "clone3": 435, "close_range": 436, "openat2": 437, "mount_setattr": 442,
                   "landlock_create_ruleset": 444}
OTHERS = {"x86_64": {"socket": 41, "mount": 165, "unshare": 272, "seccomp": 317},
          "aarch64": {"socket": 198, "mount": 40, "unshare": 97, "seccomp": 277}}[platform.machine()]
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000


def killing_script(call, third_argument):
    """Python that executes its arguments so that whoever makes this call, with that third argument, is
    killed at it."""
    number = {"write": {"x86_64": 1, "aarch64": 64}[platform.machine()]}[call]
    steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 3, number), (LOAD, 0, 0, 32),
             (EQUAL, 0, 1, third_argument), (RETURN, 0, 0, KILL_PROCESS), (RETURN, 0, 0, ALLOW)]
    return f"""import ctypes, os, struct, sys
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in {steps}))
header = struct.pack("HxxxxxxP", {len(steps)}, ctypes.addressof(program))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl({PR_SET_NO_NEW_PRIVS}, 1, 0, 0, 0) == 0
assert libc.prctl({PR_SET_SECCOMP}, {FILTER}, header) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
"""


def refusing(call, code, first_argument=None):
    """A preexec_fn: `call` (with that first argument) fails with errno `code` from then on."""
    number = {**SAME_EVERYWHERE, **OTHERS}[call]
    steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | code)]
    if first_argument is not None:
        steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 3, number), (LOAD, 0, 0, 16),
                 (EQUAL, 0, 1, first_argument), (RETURN, 0, 0, ERRNO | code)]
    steps.append((RETURN, 0, 0, ALLOW))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    header = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program))

    def apply(keep=program):
        libc = ctypes.CDLL(None, use_errno=True)
        assert keep and libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        assert libc.prctl(PR_SET_SECCOMP, FILTER, header) == 0, ctypes.get_errno()
    return apply
