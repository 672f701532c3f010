"""Hostile environments. An attack answers ``REACHED`` when it got what it must not get, else ``held``, or it dies."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.words import StopReason
from spade_daemon.errors import EpisodeFault
from spade_daemon.sandbox import Sandbox
from tests.sandbox.games import game

TARGET = "/tmp/spade-hostile"

CRASH = frozenset({StopReason.ENVIRONMENT_CRASH})
INVALID = frozenset({StopReason.ENVIRONMENT_INVALID})
HANG = frozenset({StopReason.ENVIRONMENT_HANG, StopReason.STARVED})
"""``STARVED`` too, where this machine is so busy that the attack hardly ran."""
HELD: frozenset[StopReason] = frozenset()


@dataclass(frozen=True, slots=True)
class Attack:
    """One environment and how it may end."""

    source: str
    stops: frozenset[StopReason] = field(default=HELD)
    """Empty: the attack itself must report ``held``."""


def tries(expression: str) -> Attack:
    """The expression must raise an ordinary error."""
    body = f"""
try:
    found = {expression}
except (OSError, RuntimeError, ValueError, MemoryError) as error:
    return "held"
return f"REACHED {{found!r:.100}}"
"""
    return Attack(game(body))


def raw(name: str, number: int, *arguments: str) -> Attack:
    """A system call past the C library's wrappers must fail."""
    words = ", ".join(f"ctypes.c_long({argument})" for argument in arguments)
    body = f"""
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
text = ctypes.create_string_buffer(b"/etc/passwd")
result = libc.syscall(ctypes.c_long({number}), {words})
return "held" if result < 0 else "REACHED {name}"
"""
    return Attack(game(body))


def forges(payload: str, stops: frozenset[StopReason] = INVALID) -> Attack:
    """Write bytes of its own choice to the daemon's socket, then wait for the daemon's verdict."""
    body = f"""
payload = {payload}
os.write(3, payload)
time.sleep = None
ctypes.CDLL(None).sleep(100)
return "REACHED"
"""
    return Attack(game(body), stops)


FORGED_REPLY = """
import gc
frame = sys._getframe()
while "request" not in frame.f_locals:
    frame = frame.f_back
request = frame.f_locals["request"]
def reply(**fields):
    text = json.dumps({"id": request["id"], "nonce": request["nonce"], **fields}).encode()
    os.write(3, struct.pack(">I", len(text)) + text)
"""

FILES = {
    "read": tries("open('/etc/passwd').read()"),
    "list": tries("os.listdir('/')"),
    "stat": tries("os.stat('/etc/passwd')"),
    "write": tries("open('/tmp/spade-hostile', 'w')"),
    "own_memory": tries("open('/proc/self/mem', 'r+b')"),
    "environ": tries("open(f'/proc/{os.getppid()}/environ', 'rb').read()"),
    "chdir": tries("os.chdir('/') or 'moved'"),
    "symlink": tries("os.symlink('/etc/passwd', '/tmp/spade-hostile') or 'made'"),
    "chmod": tries("os.chmod('/tmp', 0o777) or 'changed'"),
    "unlink": tries("os.unlink('/tmp/spade-hostile') or 'removed'"),
    "import_unloaded": Attack(
        game("try:\n    import lib2to3\nexcept ImportError:\n    return 'held'\nreturn 'REACHED'")
    ),
}

NETWORK = {
    "tcp": tries("socket.create_connection(('127.0.0.1', 22), 1)"),
    "udp": tries("socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"),
    "unix": tries("socket.socket(socket.AF_UNIX)"),
    "netlink": tries("socket.socket(16, 3, 0)"),
    "vsock": tries("socket.socket(40, 1)"),
    "socketpair": tries("socket.socketpair()"),
    "resolve": tries("socket.gethostbyname('example.org')"),
    "descriptor_by_message": tries("socket.socket(fileno=3).sendmsg([b'x'])"),
}

PROCESSES = {
    "fork": tries("os.fork()"),
    "spawn": tries("os.posix_spawn('/bin/true', ['true'], {})"),
    "exec": tries("os.execv('/bin/true', ['true'])"),
    "system": tries("0 if os.system('true') == 0 else open('/no')"),
    "thread": tries("__import__('_thread').start_new_thread(int, ())"),
    "kill_parent": tries("os.kill(__import__('posix').getppid(), 9) or 'killed'"),
    "kill_all": tries("os.kill(-1, 9) or 'killed'"),
    "become_root": tries("os.setuid(0) or 'root'"),
    "new_session": tries("os.setsid()"),
    "raise_limit": tries("__import__('resource').setrlimit(7, (64, 64)) or 'raised'"),
    "signal_owner": tries("__import__('fcntl').fcntl(3, 8, 1)"),
    "pidfd": tries("os.pidfd_open(1)"),
    "affinity": tries("os.sched_setaffinity(0, {0}) or 'set'"),
    "nice": tries("os.nice(1)"),
}

RAW_X86_64 = {
    "raw_open": raw("open", 2, "ctypes.addressof(text)", "0", "0"),
    "raw_openat2": raw("openat2", 437, "-100", "ctypes.addressof(text)", "0", "0"),
    "raw_ptrace": raw("ptrace", 101, "16", "1", "0", "0"),
    "raw_clone": raw("clone", 56, "17", "0", "0", "0", "0"),
    "raw_unshare": raw("unshare", 272, "0x10000000"),
    "raw_io_uring": raw("io_uring_setup", 425, "1", "0"),
    "raw_bpf": raw("bpf", 321, "0", "0", "0"),
    "raw_keyring": raw("add_key", 248, "0", "0", "0", "0", "0"),
    "raw_userfault": raw("userfaultfd", 323, "0"),
    "raw_shared_memory": raw("shmget", 29, "0", "4096", "0o1600"),
    "raw_memory_file": raw("memfd_create", 319, "ctypes.addressof(text)", "0"),
    "raw_foreign_memory": raw("process_vm_readv", 310, "1", "0", "0", "0", "0", "0"),
    "raw_prctl": raw("prctl", 157, "4", "1"),
    "raw_seccomp": raw("seccomp", 317, "0", "0", "0"),
    "raw_x32": Attack(game("ctypes.CDLL(None).syscall(ctypes.c_long(0x40000027))\nreturn 'REACHED'"), CRASH),
    "executable_memory": tries("__import__('mmap').mmap(-1, 4096, prot=7)"),
    "executable_page": raw("mprotect", 10, "id(text) & ~4095", "4096", "7"),
}

RESOURCES = {
    "memory_bomb": tries("[bytearray(1 << 24) for _ in range(10_000)]"),
    "one_big_text": tries("len('x' * (1 << 33))"),
    "memory_by_source": Attack("x = (1,) * 10**11\nclass AnyEnv: pass", CRASH),
    "nested_source": Attack("x = " + "(" * 50_000 + ")" * 50_000, CRASH),
    "pipes": tries("[os.pipe() for _ in range(100)]"),
    "descriptors": tries("[os.dup(3) for _ in range(100)]"),
    "shared_memory": tries(
        "__import__('multiprocessing.shared_memory').shared_memory.SharedMemory(create=True, size=9)"
    ),
    "endless_loop": Attack(game("while True: pass"), HANG),
    "endless_sleep": Attack(game("ctypes.CDLL(None).sleep(1000)"), HANG),
    "endless_source": Attack("while True: pass", HANG),
    "deaf_loop": Attack(
        game(
            """
import signal
for number in range(1, 64):
    try: signal.signal(number, lambda *_: None)
    except (OSError, ValueError): pass
while True:
    try:
        while True: pass
    except BaseException: pass
"""
        ),
        HANG,
    ),
    "regular_expression": Attack(game("import re\nre.match('(a+)+$', 'a' * 60 + 'b')"), HANG),
    "big_power": Attack(game("return str(9 ** 9 ** 9)"), HANG | CRASH),
    "recursion": Attack(game("return self.attack()"), CRASH),
    "output_flood": Attack(game("for _ in range(10**5): print('x' * 1000)\nreturn 'held'")),
    "error_flood": Attack(game("raise ValueError('\\x1b[2J' + 'x' * 10**7)"), CRASH),
}

ENDS = {
    "exit_now": Attack(game("os._exit(0)"), CRASH),
    "exit": Attack(game("sys.exit(0)"), CRASH),
    "exit_while_loading": Attack("import os\nos._exit(0)", CRASH),
    "interrupt": Attack(game("raise KeyboardInterrupt"), CRASH),
    "abort": Attack(game("os.abort()"), CRASH),
    "segfault": Attack(game("ctypes.string_at(0)"), CRASH),
    "close_socket": Attack(game("os.close(3)\nreturn 'held'"), CRASH),
    "error_without_text": Attack(
        game("raise Odd", head="class Odd(Exception):\n    def __str__(self): raise SystemExit"), CRASH
    ),
}

PROTOCOL = {
    "huge_length": forges("struct.pack('>I', 1 << 31)"),
    "no_length": forges("struct.pack('>I', 0)"),
    "no_json": forges("struct.pack('>I', 3) + b'{]}'"),
    "pickle": forges("struct.pack('>I', 4) + bytes([128, 4, 78, 46])"),
    "half_frame": forges("struct.pack('>I', 100) + b'{'", HANG),
    "wrong_nonce": forges(
        "(lambda b: struct.pack('>I', len(b)) + b)(json.dumps({'id': 2, 'nonce': 'x', 'ok': {}}).encode())"
    ),
    "forged_fields": Attack(
        game(FORGED_REPLY + "reply(ok={'observation': 'x', 'info': {}, 'extra': 1})\nreturn 'x'"), INVALID
    ),
    "forged_number": Attack(
        game(FORGED_REPLY + "reply(ok={'observation': 'x', 'info': {'n': float('nan')}})\nreturn 'x'"), INVALID
    ),
    "forged_depth": Attack(
        game(
            FORGED_REPLY
            + "deep = []\nfor _ in range(500): deep = [deep]\nreply(ok={'observation': 'x', 'info': {'n': deep}})"
        ),
        INVALID,
    ),
    "forged_surrogate": Attack(
        game(FORGED_REPLY + "reply(ok={'observation': chr(0xd800), 'info': {}})\nreturn 'x'"), INVALID
    ),
    "forged_key": Attack(game(FORGED_REPLY + "reply(ok={}, crash='x')\nreturn 'x'"), INVALID),
    "patched_runner": Attack(game("import box.runner\nbox.runner._info = lambda value: 7\nreturn 'x'"), INVALID),
}

ALL = FILES | NETWORK | PROCESSES | RAW_X86_64 | RESOURCES | ENDS | PROTOCOL

HARMLESS = (
    "read", "list", "stat", "environ", "udp", "unix", "netlink", "socketpair", "thread", "new_session", "affinity",
    "pipes", "pidfd", "executable_memory",
)  # fmt: skip
"""Attacks that may be let succeed, to show that they can."""


async def contain(sandbox: Sandbox, attack: Attack) -> None:
    """Play an attack; fail unless it ended as it must."""
    ended: StopReason | str
    try:
        async with sandbox.open(attack.source) as worker:
            ended = (await worker.reset(1)).observation
    except EpisodeFault as fault:
        assert len(str(fault)) < 2_500
        assert str(fault).isprintable()
        ended = fault.stop
    assert ended in attack.stops if attack.stops else ended == "held"
