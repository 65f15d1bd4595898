from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Let Ctrl-C reach what the tests start: a runner in the background ignores it, and so would its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
