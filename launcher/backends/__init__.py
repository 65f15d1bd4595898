"""The doors to where a job runs: a folder here is a backend, and its name is the backend's name."""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import TYPE_CHECKING, cast

from launcher.errors import NoSuchRunError, UsageError

if TYPE_CHECKING:
    from launcher.backends.backend import Backend

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}")


def backend_names() -> tuple[str, ...]:
    """The backends there are; nothing is imported."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg))


def backend_for(name: str) -> Backend:
    """The backend ``name``, imported now; its folder has an ``open_backend()``.

    Raises:
        UsageError: there is no such backend.
    """
    if name not in backend_names():
        raise UsageError(f"there is no backend {name!r}", allowed=", ".join(backend_names()), code="backend.name")
    return cast("Backend", importlib.import_module(f"{__name__}.{name}").open_backend())


def parse_handle(text: str) -> tuple[str, str]:
    """``local:gpt-tiny-5d0c91aa7be2f013-1`` as (backend, name).

    Raises:
        NoSuchRunError: no run can have this handle.
    """
    backend, _, name = text.partition(":")
    if backend not in backend_names() or not _RUN_NAME.fullmatch(name):
        raise NoSuchRunError(
            f"{text!r} is not the handle of a run",
            allowed=", ".join(f"{backend}:NAME" for backend in backend_names()),
            suggestion="launcher list",
            code="no_such_run.handle",
        )
    return backend, name
