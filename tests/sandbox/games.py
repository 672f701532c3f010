"""Honest environments and small helpers of these tests."""

from __future__ import annotations

from spade_daemon.sandbox import Sandbox
from spade_daemon.settings import SandboxSettings

SUPPORT = {"spade_env": "__all__ = ['Base']\nclass Base:\n    greeting = 'hello'\n"}

GUESS = '''
import random

class GuessEnv:
    """Find the hidden number."""

    max_turns = 9

    def reset(self, seed=None):
        self.target = random.Random(seed).randrange(100)
        return "guess 0-99", {"digits": 2}

    def step(self, action):
        guess = int(action)
        if guess == self.target:
            return "found", 1, True, False, {}
        return ("higher" if guess < self.target else "lower"), 0.0, False, False, {"guess": guess}

    def solution(self):
        return [str((self.target + 1) % 100), str(self.target)]
'''


def generous(**changes: float) -> SandboxSettings:
    """Limits for a loaded machine, and content with the walls that this host has."""
    return SandboxSettings.model_validate({"load_timeout": 60.0, "step_timeout": 60.0, "min_walls": 1} | changes)


def game(body: str, head: str = "") -> str:
    """An environment whose ``reset`` runs ``body`` (which must return an observation)."""
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return f"""
import ctypes, json, os, random, socket, struct, sys, time
{head}
class AttackEnv:
    def reset(self, seed=None):
        return self.attack(), {{}}

    def attack(self):
{lines}

    def step(self, action):
        return "played", 0.0, True, False, {{}}
"""


async def play_honestly(sandbox: Sandbox) -> None:
    """A whole honest episode; fails if anything of the sandbox is out of order."""
    async with sandbox.open(GUESS) as worker:
        await worker.reset(7)
        last = [await worker.step(action) for action in await worker.solution()][-1]
    assert last.reward == 1.0
    assert last.terminated
