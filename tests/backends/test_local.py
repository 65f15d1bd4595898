from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launcher.backends.local.backend import LocalBackend, run_folder
from launcher.backends.local.state import read_state
from launcher.errors import BackendError, UsageError
from tests.backends.conftest import left_running, rank_pid, wait, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.job.spec import JobSpec

    ScriptJob = Callable[..., JobSpec]

PRINT_PLACE = """
    import os
    print(*(os.environ[name] for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE",
                                          "WORLD_SIZE", "MASTER_ADDR")))
"""
STAND_STILL = """
    import os, time
    print("here", flush=True)
    time.sleep(60)
"""


def test_ranks_are_told_their_place_as_torchrun_tells_it(backend: LocalBackend, script_job: ScriptJob) -> None:
    handle = backend.submit(script_job(PRINT_PLACE, nodes=2, ranks=2)).handle

    assert wait(backend, handle).state == "Completed"
    # rank, local rank, node, group, ranks a node, all ranks: two nodes of two ranks, all on this machine.
    assert [line for rank in range(4) for line in backend.logs(handle, rank=rank)] == [
        "0 0 0 0 2 4 127.0.0.1",
        "1 1 0 0 2 4 127.0.0.1",
        "2 0 1 1 2 4 127.0.0.1",
        "3 1 1 1 2 4 127.0.0.1",
    ]


def test_two_runs_at_once_meet_at_different_ports(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job("import os, time; print(os.environ['MASTER_PORT']); time.sleep(0.3)", ranks=1)

    handles = [backend.submit(job).handle for _ in range(2)]

    assert [wait(backend, handle).state for handle in handles] == ["Completed", "Completed"]
    first, second = ("".join(backend.logs(handle, rank=0)) for handle in handles)
    assert first != second


def test_a_run_folder_is_never_written_twice(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job("print('done')", ranks=1)

    handles = [backend.submit(job).handle for _ in range(3)]

    assert handles == [f"local:script-0123456789abcdef-{attempt}" for attempt in (1, 2, 3)]
    assert json.loads(run_folder(handles[2]).job.read_text())["attempt"] == 3


def test_a_killed_rank_fails_the_run_and_leaves_nothing_running(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job("import subprocess, time; subprocess.Popen(['sleep', '60']); print('here'); time.sleep(60)")
    handle = backend.submit(job).handle
    wait_for(handle, "[rank 1] here", backend=backend)
    assert len(left_running(handle)) == 4  # two ranks, and what each of them started

    os.kill(rank_pid(handle, 1), signal.SIGKILL)
    status = wait(backend, handle)

    assert (status.state, status.exit_code) == ("Failed", 137)  # 128 + 9
    assert status.reason == "rank 1 was killed by SIGKILL (kill -9, or the kernel when memory ran out): here"
    assert left_running(handle) == ()


def test_the_reason_is_the_exception_of_the_rank_that_died(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job("""
        import os, time
        if os.environ["RANK"] == "0":
            time.sleep(60)
        raise ValueError("no such corpus")
    """)

    status = wait(backend, backend.submit(job).handle)

    assert status.reason == "rank 1 exited with code 1: ValueError: no such corpus"
    assert (status.state, status.exit_code) == ("Failed", 1)


def test_the_reason_is_the_error_a_rank_told_in_plain_words(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job("print('error: no such corpus'); print('  try      data.train=[demo]'); raise SystemExit(3)")

    status = wait(backend, backend.submit(job).handle)

    assert status.reason is not None
    assert re.fullmatch("rank [01] exited with code 3: error: no such corpus", status.reason)


def test_a_rank_that_ignores_sigterm_is_killed(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job("import signal, time; signal.signal(15, signal.SIG_IGN); print('here'); time.sleep(60)", ranks=1)
    handle = backend.submit(job).handle
    wait_for(handle, "here", backend=backend)

    status = backend.cancel(handle)

    assert status.state == "Canceled"
    assert left_running(handle) == ()


def test_a_cancelled_run_has_time_to_write_a_checkpoint(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job("""
        import signal, sys, time
        def leave(*_):
            time.sleep(0.5)
            print("checkpoint written")
            sys.exit(0)
        signal.signal(signal.SIGTERM, leave)
        print("here")
        time.sleep(60)
    """)
    handle = backend.submit(job).handle
    wait_for(handle, "[rank 1] here", backend=backend)

    status = backend.cancel(handle)

    assert status.state == "Canceled"
    assert list(backend.logs(handle, rank=0))[-1] == "checkpoint written"


def test_a_run_is_cancelled_at_any_moment(backend: LocalBackend, script_job: ScriptJob) -> None:
    for delay in (0.0, 0.02, 0.1, 0.3):
        handle = backend.submit(script_job(STAND_STILL)).handle
        time.sleep(delay)

        assert backend.cancel(handle).state == "Canceled"
        assert left_running(handle) == ()


def test_a_dead_supervisor_fails_the_run_and_takes_the_ranks_along(
    backend: LocalBackend, script_job: ScriptJob
) -> None:
    handle = backend.submit(script_job(STAND_STILL)).handle
    wait_for(handle, "[rank 1] here", backend=backend)

    supervisor = read_state(run_folder(handle).state).supervisor
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    status = wait(backend, handle)

    assert (status.state, status.reason) == ("Failed", "supervisor died")
    assert left_running(handle) == ()


def test_restarts_go_on_until_one_succeeds(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job(
        """
        import os, sys
        restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        print("start", restarts)
        sys.exit(0 if restarts == 2 else 1)
        """,
        ranks=1,
        max_restarts=2,
    )

    handle = backend.submit(job).handle

    assert wait(backend, handle).state == "Completed"
    assert list(backend.logs(handle, rank=0)) == ["start 0", "start 1", "start 2"]
    assert read_state(run_folder(handle).state).restarts == 2


def test_a_crash_loop_stops_after_three_attempts_without_a_step(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job("print('start'); raise SystemExit('boom')", ranks=1, max_restarts=10)

    handle = backend.submit(job).handle
    status = wait(backend, handle)

    assert status.reason == "crash loop, 3 attempts without a new step: rank 0 exited with code 1: boom"
    assert list(backend.logs(handle, rank=0)).count("start") == 3


def test_a_run_that_gets_further_each_time_is_no_crash_loop(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job(
        """
        import os, sys
        step = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        with open(sys.argv[1] + "/metrics.jsonl", "a") as file:
            print(f'{{"step": {step}, "time": 0, "metrics": {{"loss": 1}}}}', file=file)
        sys.exit(step < 4)
        """,
        "{output}",
        ranks=1,
        max_restarts=4,
    )

    assert wait(backend, backend.submit(job).handle).state == "Completed"


def test_a_taken_port_is_no_failure(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job(
        """
        import os, pathlib
        if not os.path.exists("seen"):
            pathlib.Path("seen").touch()
            raise OSError("[Errno 98] Address already in use")
        """,
        ranks=1,
    )

    handle = backend.submit(job).handle

    assert wait(backend, handle).state == "Completed"
    assert read_state(run_folder(handle).state).restarts == 0


def test_a_time_limit_ends_the_run(backend: LocalBackend, script_job: ScriptJob) -> None:
    status = wait(backend, backend.submit(script_job(STAND_STILL, timeout_seconds=1)).handle)

    assert (status.state, status.exit_code) == ("Failed", 124)  # as timeout(1)
    assert status.reason == "timed out after 1 s (limits.timeout_hours)"


def test_a_hung_run_is_ended_with_its_stacks_in_the_log(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job(
        """
        import sys, time
        def waits_for_ever():
            time.sleep(60)
        with open(sys.argv[1] + "/metrics.jsonl", "a") as file:
            time.sleep(0.5)
            print('{"step": 1, "time": 0, "metrics": {"loss": 1}}', file=file, flush=True)
            waits_for_ever()
        """,
        "{output}",
        ranks=1,
        hang_timeout_seconds=1.0,
    )

    handle = backend.submit(job).handle
    status = wait(backend, handle)

    assert status.state == "Failed"
    assert status.reason == "hung: no step for 1 s (limits.hang_timeout_minutes); stacks are at the end of the logs"
    assert any("in waits_for_ever" in line for line in backend.logs(handle, rank=0))


def test_a_trainer_that_leaves_without_completing_has_failed(
    backend: LocalBackend, script_job: ScriptJob, tmp_path: Path
) -> None:
    idle = tmp_path / "launcher" / "training"
    idle.mkdir(parents=True)
    for name in ("../__init__.py", "__init__.py", "__main__.py"):
        (idle / name).touch()
    job = script_job(
        "", command=("python", "-m", "launcher.training"), environment_variables={"PYTHONPATH": str(tmp_path)}
    )

    status = wait(backend, backend.submit(job).handle)

    assert status.state == "Failed"
    assert status.reason == "every rank exited with code 0, but the training did not complete"


def test_logs_follow_a_run_to_its_end(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job("import time\nfor step in range(3): print('step', step); time.sleep(0.1)\nprint('end', end='')")
    handle = backend.submit(job).handle

    lines = list(backend.logs(handle, follow=True))

    assert sorted(lines) == sorted(
        f"[rank {rank}] {text}" for rank in (0, 1) for text in ("step 0", "step 1", "step 2", "end")
    )


def test_a_rank_that_is_not_there_has_no_log(backend: LocalBackend, script_job: ScriptJob) -> None:
    handle = backend.submit(script_job("")).handle

    with pytest.raises(UsageError, match="there is no rank 2"):
        backend.logs(handle, rank=2)


def test_a_missing_script_is_refused_before_a_folder_is_made(
    backend: LocalBackend, script_job: ScriptJob, launcher_home: Path
) -> None:
    with pytest.raises(BackendError, match=r"there is no script .*train\.py"):
        backend.submit(script_job("", command=("python", "train.py")))

    assert not (launcher_home / "runs").exists()


def test_the_rendered_script_does_what_it_says(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job(
        PRINT_PLACE + "    assert os.environ['NOTE'] == \"it's\"\n", environment_variables={"NOTE": "it's"}
    )

    done = subprocess.run(("bash", "-c", backend.render(job)), check=False, capture_output=True, timeout=30)

    assert (done.returncode, done.stderr) == (0, b"")
    logs = Path(os.environ["LAUNCHER_HOME"], "runs", job.name, "logs")
    assert (logs / "rank-00001.log").read_text() == "1 1 0 0 2 2 127.0.0.1\n"


def test_threads_share_the_cores(backend: LocalBackend, script_job: ScriptJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    handle = backend.submit(script_job("import os; print(os.environ['OMP_NUM_THREADS'])", ranks=2)).handle

    wait(backend, handle)

    cores = len(os.sched_getaffinity(0))
    assert list(backend.logs(handle, rank=0)) == [str(max(1, cores // 2))]


def test_inputs_and_outputs_of_azure_ml_are_local_folders_here(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job("import sys; print(*sys.argv[1:])", "${{inputs.corpus}}", "--to=${{ outputs.model }}", ranks=1)
    job.document["recipe"]["data"] = {"inputs": {"corpus": "texts"}}
    handle = backend.submit(job).handle

    wait(backend, handle)

    code, output = job.snapshot.root, run_folder(handle).output
    assert list(backend.logs(handle, rank=0)) == [f"{code}/texts --to={output}/model"]


def test_a_remote_input_is_refused(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job("", "${{inputs.corpus}}")
    job.document["recipe"]["data"] = {"inputs": {"corpus": "azureml:corpus:3"}}

    with pytest.raises(BackendError, match="corpus = azureml:corpus:3 is not on this machine"):
        backend.submit(job)


def test_an_input_nobody_named_is_refused(backend: LocalBackend, script_job: ScriptJob) -> None:
    with pytest.raises(BackendError, match="an input 'corpus', and there is none"):
        backend.submit(script_job("", "${{inputs.corpus}}"))


def test_secrets_reach_the_ranks_and_not_what_is_rendered(backend: LocalBackend, script_job: ScriptJob) -> None:
    # Case M08: unslothai/unsloth pull 11100.
    variables = {"AZURE_STORAGE_KEY": "k123", "NCCL_DEBUG": "INFO"}
    job = script_job(
        "import os; print(os.environ['AZURE_STORAGE_KEY'])",
        "--token",
        "abc123",
        environment_variables=variables,
        ranks=1,
    )
    job.document["recipe"]["environment"] = {"variables": variables}
    handle = backend.submit(job).handle
    wait(backend, handle)

    assert list(backend.logs(handle, rank=0)) == ["k123"]
    shown = backend.render(job)
    assert "INFO" in shown
    assert "k123" not in shown
    assert "abc123" not in shown


def test_a_peers_complaint_is_not_the_reason(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job("""
        import os, time
        if os.environ["RANK"] == "0":
            time.sleep(0.2)
            raise RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer [127.0.0.1]:23456")
        try:
            raise MemoryError("no room for the logits")
        finally:
            time.sleep(0.6)
    """)

    status = wait(backend, backend.submit(job).handle)

    assert status.reason is not None
    assert re.fullmatch("rank 1 .* MemoryError: no room for the logits", status.reason)


def test_a_killed_rank_is_the_reason_whatever_its_peers_say_of_it(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job("""
        import os, signal, time
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation")
    """)

    status = wait(backend, backend.submit(job).handle)

    assert status.exit_code == 137
    assert status.reason is not None
    assert status.reason.startswith("rank 1 was killed by SIGKILL")
    assert run_folder(status.handle).failed.exists()  # rank 0 was ended because of it: no cancellation


def test_a_stopped_rank_is_ended_too(backend: LocalBackend, script_job: ScriptJob) -> None:
    handle = backend.submit(script_job(STAND_STILL)).handle
    wait_for(handle, "[rank 1] here", backend=backend)

    os.kill(rank_pid(handle, 0), signal.SIGSTOP)

    assert backend.cancel(handle).state == "Canceled"
    assert left_running(handle) == ()


def test_a_process_that_left_its_group_is_ended_too(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job("import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)", ranks=1)
    handle = backend.submit(job).handle

    assert wait(backend, handle).state == "Completed"
    assert left_running(handle) == ()


def test_a_full_disk_does_not_hide_how_a_run_ended(
    backend: LocalBackend, script_job: ScriptJob, monkeypatch: pytest.MonkeyPatch, small_disk: Path
) -> None:
    monkeypatch.setenv("LAUNCHER_HOME", str(small_disk))
    job = script_job("""
        import sys
        try:
            with open(sys.argv[1] + "/large", "wb", buffering=0) as file:
                while file.write(bytes(4096)): pass
        except OSError as error:
            sys.exit(error.errno)
    """, "{output}", ranks=1)  # fmt: skip
    handle = backend.submit(job).handle

    status = wait(backend, handle)

    assert (status.state, status.exit_code) == ("Failed", 28)  # ENOSPC
    assert status.reason == "rank 0 exited with code 28"
