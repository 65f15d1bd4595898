"""Where runs, the journal and caches live on this machine: ``$LAUNCHER_HOME``, else the platform's data folder."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The launcher's own folder; not created here."""
    chosen = os.environ.get("LAUNCHER_HOME")
    if chosen:
        return Path(chosen).expanduser().resolve()
    import platformdirs

    return Path(platformdirs.user_data_dir("launcher", appauthor=False))


def runs_folder() -> Path:
    """One folder per local run, named by the run."""
    return home() / "runs"


def cache_folder() -> Path:
    """Things that can be made again: tokenized corpora, trained tokenizers."""
    return home() / "cache"
