"""What is wrong with a corpus, a shard or a tokenizer."""

from __future__ import annotations

from launcher.errors import ExitCode, LauncherError


class DataError(LauncherError):
    """A corpus, a shard or a tokenizer cannot be read as asked."""

    exit_code = ExitCode.REFUSED
    code = "data"
