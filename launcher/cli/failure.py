"""What is told when a command fails: every fault with what, where, allowed and try; and the exit code.

The only place where an error of ours becomes text, or the ``error`` member of a JSON answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from launcher.cli import terminal
from launcher.cli.places import fault_places
from launcher.errors import BudgetError, Fault, LauncherError, MissingExtraError, PlanError, RecipeError, UsageError
from launcher.registry import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from launcher.cli.invocation import Invocation
    from launcher.cli.places import Place
    from launcher.compose.composer import Composed


EXTRAS = {
    "local": (
        "deepspeed",
        "mlflow",
        "numpy",
        "peft",
        "psutil",
        "pyarrow",
        "safetensors",
        "tokenizers",
        "torch",
        "transformers",
    ),
    "export": ("onnx", "onnxruntime", "onnxscript"),
    "azure": ("azure",),
}
"""Optional packages of pyproject.toml, by the extra that installs them."""


def tell(error: Exception, arguments: Sequence[str], invocation: Invocation) -> int:
    """Say what went wrong, as JSON on stdout or as text on stderr; returns the exit code.

    Raises:
        Exception: ``error`` itself, when it is no fault of the user's and ``--debug`` asks for the traceback.
    """
    told = as_launcher_error(error)
    if told is None:
        if invocation.debug:
            raise error
        from launcher.cli.defect import tell_defect

        return tell_defect(error, arguments, invocation)
    if invocation.json:
        invocation.answer({"error": error_document(told, invocation.composed)}, str)
    else:
        invocation.say("\n".join(error_lines(told, invocation.composed)))
    return told.exit_code


def as_launcher_error(error: Exception) -> LauncherError | None:
    """``error`` in our layout: a complaint of click, a package that is not installed; None for a defect of ours."""
    if isinstance(error, LauncherError):
        return error
    if isinstance(error, click.ClickException):
        return _usage_error(error)
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        for extra, packages in EXTRAS.items():
            if package in packages:
                return MissingExtraError(
                    f"{package} is not installed", suggestion=f"pip install 'launcher[{extra}]'", code="missing_extra"
                )
    return None


def error_document(error: LauncherError, composed: Composed | None) -> dict[str, Any]:
    """``{code, message, faults[{what, keys, where, allowed, try, code}]}``; ``where`` names every key's place."""
    return {
        "code": error.code,
        "message": str(error),
        "faults": [_fault_document(fault, error, composed) for fault in error.faults],
    }


def error_lines(error: LauncherError, composed: Composed | None) -> list[str]:
    """A block a fault, worst first, and how many there were when the recipe was refused."""
    lines: list[str] = []
    for fault in error.faults:
        places = fault_places(fault, composed)
        lines += [*fault_lines(fault, code=fault.code or error.code, places=places), ""]
    if isinstance(error, RecipeError | PlanError | BudgetError):
        count = len(error.faults)
        return [*lines, f"{count} fault{'' if count == 1 else 's'}. Nothing was submitted."]
    return lines[:-1]


def fault_lines(fault: Fault, *, code: str, places: Iterable[Place], level: str = "error") -> list[str]:
    """One fault: what and its code, then where, allowed and try."""
    where = terminal.table((place.words for place in places), gap=4)
    rows = {
        "where": where,
        "allowed": terminal.wrapped(fault.allowed, terminal.width() - 11) if fault.allowed else [],
        "try": fault.suggestion.splitlines() if fault.suggestion else [],
    }
    lines = _headline(level, fault.what, code)
    for label, texts in rows.items():
        lines += ["  " + line for line in terminal.labelled(label, texts)]
    return lines


def unknown_verb(word: str, verbs: Sequence[str], *, program: str) -> UsageError:
    """``launcher plna``."""
    near = nearest(word, verbs)
    return UsageError(
        f"{program} has no verb '{word}'",
        allowed=", ".join(verbs),
        suggestion="\n".join(f"{program} {verb}" for verb in near) or f"{program} --help",
    )


def _headline(level: str, what: str, code: str) -> list[str]:
    """``error: what``, wrapped, with ``[code]`` at the right end of its last line."""
    paint = terminal.red if level == "error" else terminal.yellow
    label, mark, size = f"{level}: ", f"[{code}]", terminal.width()
    first, *rest = terminal.wrapped(f"{label}{what} {mark}", size, indent=" " * len(label))
    lines = [paint(f"{level}:") + first.removeprefix(f"{level}:"), *rest]
    lines[-1] = terminal.ends(lines[-1].removesuffix(mark).rstrip(), terminal.dim(mark), size)
    return lines


def _fault_document(fault: Fault, error: LauncherError, composed: Composed | None) -> dict[str, Any]:
    places = fault_places(fault, composed)
    return {
        "what": fault.what,
        "keys": list(fault.keys),
        "where": "; ".join(dict.fromkeys(place.origin for place in places)) or None,
        "allowed": fault.allowed,
        "try": fault.suggestion,
        "code": fault.code or error.code,
    }


def _usage_error(error: click.ClickException) -> UsageError:
    """Click's complaint in our layout, with near misses among the options of the verb it was about."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    program = context.command_path if context else "launcher"
    if isinstance(error, click.NoSuchOption):
        options = [name for parameter in context.command.params for name in parameter.opts] if context else []
        near = nearest(error.option_name, [name for name in options if name.startswith("--")])
        return UsageError(f"{program} has no option {error.option_name}", suggestion="\n".join(near) or f"{program} -h")
    what = error.format_message().rstrip(".")
    return UsageError(what[:1].lower() + what[1:], suggestion=f"{program} -h")
