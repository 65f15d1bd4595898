from __future__ import annotations

import pytest

from launcher.backends.backend import RunStatus, State
from launcher.runs.diagnose import explain, last_traceback

HANDLE = "azureml:run-5d0c91aa7be2f013-1"


def ended(reason: str = "", *, state: State = "Failed", exit_code: int | None = None) -> RunStatus:
    return RunStatus(handle=HANDLE, state=state, reason=reason or None, exit_code=exit_code)


def traceback(last: str, *, prefix: str = "") -> list[str]:
    lines = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "    main()", last]
    return [prefix + line for line in lines]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        # texts of the services and of public issues; the issue stands behind each
        ("quota", "JobNodeCountExceedsCoreQuota: The specified subscription has a Standard DSv2 family vCPU quota of 2 "
         "and is less than the requested job node count of 2 which maps to 4 vCPUs"),  # mslearn-dp100#35
        ("quota", "ClusterQuotaReached : Operation results in exceeding quota limits of Microsoft.BatchAI/clusters"),
        ("capacity", "AllocationFailed: Allocation failed. We do not have sufficient capacity"),
        ("preempted", "JobPreempted: The job was preempted: its low priority nodes were evicted."),
        ("timeout", "JobTimedOut: The job exceeded its time limit and was canceled."),
        ("data", "data-capability.UriMountSession.PyFuseError DataAccessError(NotFound)"),  # azure-sdk-for-python#27318
        ("image", "Failed to pull image: manifest unknown"),
        ("sign_in", "AuthorizationFailed: The client does not have authorization to perform action"),
        ("service", "SystemError: something inside"),
    ],
)  # fmt: skip
def test_the_services_own_words_name_the_class(kind: str, reason: str) -> None:
    assert explain(ended(reason), {}).kind == kind


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("gpu_memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.90 GiB."),  # dllm#9
        ("host_memory", "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error."),  # hi-ml#870
        ("host_memory", "MemoryError"),
        ("disk", "OSError: [Errno 28] No space left on device"),
        ("nan", "launcher.training.errors.NotFiniteError: step 7 stopped: the loss on this rank is nan"),
        ("nccl", "RuntimeError: NCCL error: unhandled system error, Duplicate GPU detected : rank 0 and rank 1"),
        ("nccl", "CUDA error: invalid device ordinal"),  # azureml-examples#675
        ("hang", "RuntimeError: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12)"),
        ("rendezvous", "RuntimeError: The server socket has failed to listen: Address already in use"),
        ("image", "OSError: [Errno 8] exec format error"),
        ("data", "FileNotFoundError: [Errno 2] No such file: '/mnt/cap/data-capability/wd/INPUT_corpus/x.bin'"),
        ("user_code", "KeyError: 'learning_rate'"),
    ],
)
def test_the_exception_that_ends_a_ranks_traceback_names_the_class(kind: str, line: str) -> None:
    found = explain(ended(exit_code=1), {0: ["step 1", *traceback(line)]})
    assert (found.kind, found.rank) == (kind, 0)
    assert found.next


def test_the_rank_that_failed_first_is_named_not_those_that_noticed() -> None:
    logs = {
        0: traceback("RuntimeError: [1] is setting up NCCL communicator: Connection closed by peer"),
        1: traceback("ValueError: bad sample 17", prefix="[rank1]: "),
        2: traceback("torch.distributed.DistBackendError: NCCL communicator was aborted"),
    }
    found = explain(ended(exit_code=1), logs)
    assert (found.rank, found.what, found.kind) == (1, "ValueError: bad sample 17", "user_code")


def test_only_infrastructure_may_pass_by_itself() -> None:
    assert explain(ended("JobPreempted: evicted"), {}).may_pass
    assert not explain(ended(exit_code=1), {0: traceback("KeyError: 'x'")}).may_pass
    assert not explain(ended(exit_code=1), {0: traceback("torch.OutOfMemoryError: CUDA out of memory")}).may_pass


def test_a_killed_process_without_a_word_is_taken_for_memory() -> None:
    assert (
        explain(ended("Execution failed. exited with status code 137", exit_code=137), {0: ["step 1"]}).kind
        == "host_memory"
    )


def test_a_killed_rank_is_not_hidden_by_what_its_peers_say_of_it() -> None:
    logs = {0: traceback("RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer"), 1: ["step 1"]}
    found = explain(ended("rank 1 was killed by SIGKILL", exit_code=137), logs)
    assert (found.kind, found.rank) == ("host_memory", None)


def test_ranks_that_were_told_to_end_were_preempted() -> None:
    assert explain(ended(exit_code=143), {0: ["asked to stop: step 7 is saved"]}).kind == "preempted"


def test_a_run_that_waits_says_what_for() -> None:
    found = explain(ended("The job is waiting: quota of standardNDSH100v5Family", state="Queued"), {})
    assert found.kind == "quota"
    assert "launcher gpus" in found.next[0]


def test_a_run_that_goes_on_or_completed_is_not_explained_away() -> None:
    assert explain(ended(state="Running"), {}).kind == "running"
    assert explain(ended(state="Completed"), {}).kind == "completed"
    assert explain(ended(state="Canceled"), {}).kind == "canceled"


def test_our_own_refusal_inside_the_job_is_a_matter_of_the_plan() -> None:
    lines = ["error: the plan made here (ab) is not the plan that was submitted (cd)", "  try  submit again"]
    assert explain(ended(exit_code=3), {0: lines}).kind == "plan"


def test_what_nobody_knows_is_said_to_be_unknown() -> None:
    assert explain(ended("who knows"), {0: ["hello"]}).kind == "unknown"


def test_the_last_traceback_ends_with_its_exception() -> None:
    lines = [*traceback("ValueError: first"), "noise", *traceback("KeyError: 'last'"), "more noise"]
    assert last_traceback(lines)[-1] == "KeyError: 'last'"
    assert last_traceback(["no traceback here"]) == []
