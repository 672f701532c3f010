from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spade_daemon.errors import UserInputError
from spade_daemon.log.locks import home_lock

HOLD = """
import sys
from pathlib import Path
from spade_daemon.log.locks import home_lock
with home_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_holder_is_named_and_its_death_frees_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "main" / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserInputError, match=rf"held by process {holder.pid}"), home_lock(path):
            pass
        holder.kill()
        holder.wait()
        with home_lock(path):
            assert path.exists()


def test_it_can_be_held_again_after_use(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for _ in range(2):
        with home_lock(path), pytest.raises(UserInputError), home_lock(path):
            pass
