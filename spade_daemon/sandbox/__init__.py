"""Runs environments written by a language model in sealed processes, and believes nothing they say."""

from spade_daemon.sandbox.replies import Loaded, Reset, Step
from spade_daemon.sandbox.sandbox import Sandbox
from spade_daemon.sandbox.selftest import SandboxRefused
from spade_daemon.sandbox.worker import Worker

__all__ = ["Loaded", "Reset", "Sandbox", "SandboxRefused", "Step", "Worker"]
