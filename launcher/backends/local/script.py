"""A run as a shell script: the exact command and environment of every rank, to read or to run by hand."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from launcher.backends.local.ranks import rank_variables, run_variables
from launcher.recipe.redact import redact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.backends.local.folder import Launch, RunFolder
    from launcher.job.spec import JobSpec

_FREE_PORT = """import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])"""


def render_script(job: JobSpec, launch: Launch, folder: RunFolder) -> str:
    """A bash script that does by hand what the supervisor does, but for restarts, states and time limits."""
    return "\n".join(_lines(job, launch, folder)) + "\n"


def _lines(job: JobSpec, launch: Launch, folder: RunFolder) -> Iterator[str]:
    yield f"# local:{job.name}: {launch.world_size} ranks on this machine"
    yield f"mkdir -p {_quote(folder.output)} {_quote(folder.logs)}"
    yield f"cat > {_quote(folder.job)} <<'END_OF_JOB'"
    yield json.dumps(redact(job.document), indent=1)
    yield "END_OF_JOB"
    yield f"cd {_quote(launch.folder)}"
    yield f"port=$({shlex.join((launch.command[0], '-c', _FREE_PORT))})"
    for name, value in run_variables(launch, folder, {}).items():
        yield f"export {name}={_shown(name, value)}"
    yield "pids="
    for rank in range(launch.world_size):
        place = " ".join(f"{name}={value}" for name, value in rank_variables(launch, rank, port="$port").items())
        yield f'{place} {shlex.join(redact(launch.command))} > {_quote(folder.log(rank))} 2>&1 & pids="$pids $!"'
    yield "code=0; for pid in $pids; do wait $pid || code=1; done; exit $code"


def _shown(name: str, value: str) -> str:
    """The value for the shell; a secret is taken from the environment of whoever runs the script."""
    if redact(value, name=name) == value:
        return shlex.quote(value)
    return f'"${{{name}:?a secret, not shown here: set it first}}"'


def _quote(path: object) -> str:
    return shlex.quote(str(path))
