"""Fixtures of the emulator's tests."""

from tests.emulated import inside, running_emulator

__all__ = ["inside", "running_emulator"]
