"""An event listener of supervisord that ends what its programs leave behind.

supervisord restarts a program whose process was killed, but does not end that process's children: a model server's
engine would keep its memory, and the fresh server would find none. And when supervisord itself is killed, nobody stops
its programs. The reaper sits in the session that ``supervise.start`` made for supervisord and covers both. It acts only
inside it.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import TextIO

from spade_daemon.sessions import end_session, leaderless, members, send

GRACE_SECONDS = 20.0
NO_SESSION = -1
"""No process is in it."""


class _Stopped(BaseException):
    """supervisord asked us to stop."""


def main() -> None:
    """Speak supervisord's event protocol on standard input and output until supervisord stops us or is gone."""
    signal.signal(signal.SIGTERM, _on_stop)
    session = os.getsid(0)
    if session != os.getppid():
        _note("supervisord does not lead this session: leaving other processes alone")
        session = NO_SESSION
    try:
        while _next_event(sys.stdin, sys.stdout):
            sweep(session)
            print("RESULT 2\nOK", end="", flush=True)
    except _Stopped:
        # supervisord stops us last, and while it shuts down it may not get round to sending events.
        sweep(session)
        return
    # Not a word here: supervisord was the reader of our standard error too.
    end_session(session, keep=os.getpid(), grace=GRACE_SECONDS)


def sweep(session: int) -> None:
    """Kill the members of every process group whose leader has ended."""
    left = leaderless(members(session))
    if left:
        _note("ending what a program left behind: " + ", ".join(str(member.pid) for member in left))
        send(left, signal.SIGKILL)


def _next_event(source: TextIO, sink: TextIO) -> bool:
    """Wait for one event; its content is only an occasion to look. ``False``: supervisord closed the pipe."""
    try:
        print("READY", file=sink, flush=True)
    except BrokenPipeError:
        return False
    header = source.readline()
    if not header:
        return False
    fields = dict(token.split(":", 1) for token in header.split())
    return len(source.read(int(fields["len"]))) == int(fields["len"])


def _on_stop(number: int, frame: FrameType | None) -> None:
    raise _Stopped


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
