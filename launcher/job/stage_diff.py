"""What was changed since the commit, as a diff that is fit to travel: no secrets in it, and not too long."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from launcher.job.secret_scan import find_secrets
from launcher.units import MIB

if TYPE_CHECKING:
    from pathlib import Path

_GIT_SECONDS = 60
_LONGEST_BYTES = MIB
_CREDENTIALS = (":(exclude,icase)*.env*", ":(exclude,icase)*.pem", ":(exclude,icase)*.key", ":(exclude)*id_rsa*")


def uncommitted_diff(root: Path) -> bytes:
    """``git diff HEAD`` of text below ``root``; empty when nothing changed, and outside a checkout."""
    command = (
        "git",
        "--no-optional-locks",
        "-C",
        str(root),
        "diff",
        "HEAD",
        "--no-color",
        "--no-ext-diff",
        "--relative",
    )
    try:
        done = subprocess.run(
            (*command, "--", ".", *_CREDENTIALS), capture_output=True, timeout=_GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return _unless_secret(done.stdout[:_LONGEST_BYTES]) if done.returncode == 0 else b""


def _unless_secret(diff: bytes) -> bytes:
    """A line that was removed because it held a secret must not travel in the diff that removes it."""
    lines = sorted({secret.line for secret in find_secrets(diff)})
    return f"withheld: lines {lines} look like secrets\n".encode() if lines else diff
