"""Faults A1 to A19 of a submission, through the real SDK over real HTTPS; the emulator's ledger is the judge.

==== ============================================ ====================================================================
A1   429, with and without Retry-After            test_a_busy_or_broken_service_is_tried_again_under_the_same_name
A2   500, 502, 503, 504, at every call            the same, test_a_broken_answer_anywhere_on_the_way_is_survived
A3   time-out or reset before it is accepted      test_a_lost_answer_never_makes_a_second_job_nor_loses_the_first
A4   time-out or reset after it is accepted       the same
A5   accepted, and not to be seen for a while     test_an_accepted_job_that_shows_late_is_waited_for_and_never_renamed
A6   the token expires on the way                 test_an_expired_token_is_renewed_once_and_the_name_stays
A7   wrong tenant, no role, wrong secret          test_a_foreign_tenant_..., test_a_role_..., test_a_wrong_secret_...
A8   a clock an hour off                          test_a_clock_that_is_an_hour_off_is_named_when_the_token_is_refused
A9   storage throttles, or crawls                 test_storage_that_throttles_or_crawls_is_waited_for
A10  half an upload                               test_half_an_upload_is_never_referred_to
A11  code edited meanwhile                        test_code_that_changes_after_it_was_named_stops_the_submission
A12  a signal at any moment                       test_kill_points.py: SIGKILL and SIGINT at each request and each fsync
A13  two people, the same second                  test_races.py, test_the_same_thing_submitted_twice_is_one_job
A14  our name, another's content                  test_a_job_of_our_name_with_other_content_is_refused_with_both_...
A15  workspace or compute gone                    test_a_workspace_that_is_gone_..., test_a_compute_target_...
A16  beyond the quota                             test_a_quota_that_does_not_reach_says_what_is_wanted_left_and_...
A17  HTML, half a body, no body, bad JSON         test_an_answer_that_is_no_answer_..., test_a_refusal_carries_the_...
A18  proxy, TLS, DNS                              test_a_certificate_nobody_..., test_a_proxy_that_is_not_there_is_named
A19  cancel races the start, cancel twice         test_cancelling_may_be_repeated_and_raced_with_the_start
==== ============================================ ====================================================================
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from launcher.backends.azureml.backend import AzureMLBackend
from launcher.backends.azureml.patience import Patience
from launcher.errors import ExitCode, LauncherError, NoSuchRunError, UnknownOutcomeError
from tests.azureml.jobs import tiny_job

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.job.spec import JobSpec
    from tests.emulated import Inside

pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
pytestmark = pytest.mark.usefixtures("quiet_sdk")

IMPATIENT = Patience(read_seconds=1.0, connect_seconds=3.0, backoff_seconds=0.02, settle_seconds=6.0)
PUT_JOB = "/jobs/tiny-"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    return folder


def backend() -> AzureMLBackend:
    return AzureMLBackend(patience=IMPATIENT)


def submitted(job: JobSpec) -> str:
    return backend().submit(job).handle.removeprefix("azureml:")


def refusal(job: JobSpec) -> LauncherError:
    with pytest.raises(LauncherError) as caught:
        backend().submit(job)
    return caught.value


def text(error: LauncherError) -> str:
    return "\n".join(f"{fault.code}: {fault.what} | {fault.allowed} | {fault.suggestion}" for fault in error.faults)


# A1, A2: the service is busy or broken


@pytest.mark.parametrize(
    ("status", "headers"), [(429, {"Retry-After": "1"}), (429, {}), (500, {}), (502, {}), (503, {}), (504, {})]
)
def test_a_busy_or_broken_service_is_tried_again_under_the_same_name(
    status: int, headers: dict[str, str], inside: Inside, root: Path
) -> None:
    job = tiny_job(root, seed=status + len(headers))
    inside.fault("status", "PUT", PUT_JOB, status=status, times=2, headers=headers)
    assert submitted(job) == job.name
    assert (inside.puts(job.name), len(inside.accepted(job.name))) == (1, 1)  # two were turned away at the door


@pytest.mark.parametrize("path", ["/codes/", "/environments/", "listSecrets", "blob.core", "/jobs/", "oauth2"])
def test_a_broken_answer_anywhere_on_the_way_is_survived(path: str, inside: Inside, root: Path) -> None:
    job = tiny_job(root, seed=hash(path) % 1000 + 1000)
    inside.fault("status", "*", path, status=503)
    assert submitted(job) == job.name
    assert len(inside.accepted(job.name)) == 1


# A3, A4, A5: time-outs and resets, before and after


@pytest.mark.parametrize(
    ("kind", "seed"), [("hang_before", 31), ("reset_before", 32), ("garbage", 33), ("hang_after", 41),
                       ("reset_after", 42), ("half_after", 43), ("garbage_after", 44), ("empty_after", 45),
                       ("status_after", 46)],
)  # fmt: skip
@pytest.mark.parametrize("policy", ["accepted", "immutable"])
def test_a_lost_answer_never_makes_a_second_job_nor_loses_the_first(
    kind: str, seed: int, policy: str, inside: Inside, root: Path
) -> None:
    job = tiny_job(root, seed=seed * 10 + len(policy))
    inside.settings(repeated_put=policy)
    inside.fault(kind, "PUT", PUT_JOB, seconds=3.0)
    assert submitted(job) == job.name
    assert inside.accepted(job.name) == [job.name]


def test_an_accepted_job_that_shows_late_is_waited_for_and_never_renamed(inside: Inside, root: Path) -> None:
    job = tiny_job(root, seed=50)
    inside.fault("reset_after", "PUT", PUT_JOB)
    inside.fault("invisible", "PUT", PUT_JOB, seconds=1.0)
    before = len(inside.accepted())
    assert submitted(job) == job.name
    assert len(inside.accepted()) == before + 1


def test_a_service_that_stays_silent_leaves_the_outcome_unknown_and_the_next_submit_finds_it(
    inside: Inside, root: Path
) -> None:
    job = tiny_job(root, seed=51)
    inside.fault("hang_after", "PUT", PUT_JOB, seconds=3.0)
    inside.fault("status", "GET", PUT_JOB, status=503, times=1000, skip=1)
    inside.fault("status", "PUT", PUT_JOB, status=503, times=1000)
    with pytest.raises(UnknownOutcomeError) as caught:
        backend().submit(job)
    assert caught.value.exit_code is ExitCode.UNKNOWN_OUTCOME

    inside.ask("faults/clear")
    found = backend().find(f"azureml:{job.name}")
    assert found is not None
    assert submitted(job) == job.name
    assert inside.accepted(job.name) == [job.name]


# A6, A7, A8: who is asking, and when


def test_an_expired_token_is_renewed_once_and_the_name_stays(inside: Inside, root: Path) -> None:
    job = tiny_job(root, seed=60)
    for path in ("/codes/", PUT_JOB):
        inside.fault("status", "*", path, status=401, code="AuthenticationFailed")
    assert submitted(job) == job.name
    assert inside.accepted(job.name) == [job.name]


def test_a_foreign_tenant_says_which_was_used_and_which_is_needed(inside: Inside, root: Path) -> None:
    ours, theirs = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
    message = (
        f"The access token is from the wrong issuer 'https://sts.windows.net/{ours}/'. It must match the tenant "
        f"'https://sts.windows.net/{theirs}/' associated with this subscription."
    )
    inside.fault("status", "*", "/jobs/", status=401, times=9, code="InvalidAuthenticationTokenTenant", message=message)
    said = text(refusal(tiny_job(root, seed=70)))
    assert f"signed in to tenant {ours}" in said
    assert f"az login --tenant {theirs}" in said


def test_a_role_that_is_missing_is_named_with_who_can_give_it(inside: Inside, root: Path) -> None:
    inside.settings(role="none")
    job = tiny_job(root, seed=71)
    error = refusal(job)
    assert "does not have authorization" in text(error)
    assert "AzureML Data Scientist" in text(error)
    assert error.exit_code is ExitCode.BACKEND
    assert inside.accepted(job.name) == []


def test_a_wrong_secret_is_a_sign_in_error_before_anything_is_uploaded(
    inside: Inside, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "wrong" * 4)
    inside.ask("traffic/clear")
    said = text(refusal(tiny_job(root, seed=72)))
    assert "azureml.sign_in" in said
    assert "wrong" * 4 not in said
    assert not any("blob" in path for _, path, _ in inside.requests())


def test_a_clock_that_is_an_hour_off_is_named_when_the_token_is_refused(
    inside: Inside, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside.fault("status", "*", "/jobs/", status=401, times=9, headers={"Date": "Mon, 01 Dec 2014 00:00:00 GMT"})
    assert "this machine's clock is" in text(refusal(tiny_job(root, seed=80)))


# A9, A10, A11: the upload


@pytest.mark.parametrize(
    "fault", [{"kind": "status", "status": 503, "times": 5, "code": "ServerBusy"}, {"kind": "slow", "seconds": 1.5}]
)
def test_storage_that_throttles_or_crawls_is_waited_for(fault: dict[str, Any], inside: Inside, root: Path) -> None:
    (root / "entry.py").write_text(f"print('{fault['kind']}')\n")
    job = tiny_job(root, entry={"script": "entry.py"})
    inside.fault(method="PUT", path="blob.core.*-upload", **fault)
    assert submitted(job) == job.name
    assert inside.ask("faults/hits")


def test_half_an_upload_is_never_referred_to(inside: Inside, root: Path) -> None:
    (root / "entry.py").write_text("print(10)\n")
    job = tiny_job(root, entry={"script": "entry.py"})
    inside.fault("status", "PUT", "blob.core.*entry.py", status=403, times=1, code="AuthenticationFailed")
    assert "cannot upload entry.py" in text(refusal(job))
    codes = [path for path in inside.emulator.workspace.resources if path.startswith("codes/")]
    assert not any((job.snapshot.digest or "")[:40] in path for path in codes)
    assert inside.accepted(job.name) == []
    assert submitted(job) == job.name


def test_code_that_changes_after_it_was_named_stops_the_submission(inside: Inside, root: Path) -> None:
    (root / "entry.py").write_text("print(11)\n")
    job = tiny_job(root, entry={"script": "entry.py"})
    (root / "entry.py").write_text("print(12)\n")
    assert "changed since the job was named" in text(refusal(job))
    assert inside.accepted(job.name) == []


def test_unchanged_code_is_not_sent_again(inside: Inside, root: Path) -> None:
    first, second = tiny_job(root, seed=110), tiny_job(root, seed=111)
    submitted(first)
    inside.ask("traffic/clear")
    submitted(second)
    assert not any("-upload" in path for _, path, _ in inside.requests())


# A13, A14: two of the same, and two of one name


def test_the_same_thing_submitted_twice_is_one_job(inside: Inside, root: Path) -> None:
    job = tiny_job(root, seed=130)
    assert submitted(job) == submitted(job)
    assert inside.accepted(job.name) == [job.name]


def test_a_job_of_our_name_with_other_content_is_refused_with_both_fingerprints(inside: Inside, root: Path) -> None:
    job = tiny_job(root, seed=140)
    submitted(job)
    other = replace(job, image="docker.io/other@sha256:1")
    said = text(refusal(other))
    assert "it is another" in said
    assert "--attempt 2" in said


# A15, A16: what is not there, and what is not allowed


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("AZUREML_ARM_WORKSPACE_NAME", "gone", "workspaces/gone"),
        ("AZUREML_ARM_RESOURCEGROUP", "gone", "Resource group 'gone'"),
        ("AZUREML_ARM_SUBSCRIPTION", "00000000-0000-0000-0000-00000000dead", "could not be found"),
    ],
)
def test_a_workspace_that_is_gone_is_found_before_the_upload(
    variable: str, value: str, said: str, inside: Inside, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    inside.ask("traffic/clear")
    assert said in text(refusal(tiny_job(root, seed=150)))
    assert not any("-upload" in path for _, path, _ in inside.requests())


def test_a_compute_target_that_is_gone_is_named_before_the_upload(inside: Inside, root: Path) -> None:
    inside.ask("traffic/clear")
    said = text(refusal(tiny_job(root, seed=151, cluster={"compute": "gone"})))
    assert "no compute target 'gone'" in said
    assert not any("-upload" in path for _, path, _ in inside.requests())


def test_a_quota_that_does_not_reach_says_what_is_wanted_left_and_would_fit(inside: Inside, root: Path) -> None:
    inside.settings(cores_by_family={"Standard DSv3 Family": 10})
    job = tiny_job(root, seed=160, cluster={"instance_count": 3})
    said = text(refusal(job))
    assert "12 vCPUs" in said  # 3 x 4
    assert "10" in said
    assert "cluster.instance_count=2" in said  # 2 x 4 <= 10
    assert inside.puts(job.name) == 0


# A17, A18: answers that are none, connections that are none


@pytest.mark.parametrize("kind", ["garbage", "empty_after", "half_after"])
def test_an_answer_that_is_no_answer_is_asked_for_again(kind: str, inside: Inside, root: Path) -> None:
    job = tiny_job(root, seed=170 + len(kind))
    inside.fault(kind, "GET", "/jobs/tiny-")
    assert submitted(job) == job.name


def test_a_refusal_carries_the_request_id(inside: Inside, root: Path) -> None:
    inside.fault("status", "PUT", PUT_JOB, status=400, code="UserError", message="no such thing", times=9)
    said = text(refusal(tiny_job(root, seed=175)))
    assert "no such thing" in said
    assert "(request " in said


def test_a_certificate_nobody_vouches_for_is_named_and_not_tried_again(
    inside: Inside, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import certifi

    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
    monkeypatch.setenv("SSL_CERT_FILE", certifi.where())
    said = text(refusal(tiny_job(root, seed=180)))
    assert "certificate" in said


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "http://no-such-host.invalid:3128"])
def test_a_proxy_that_is_not_there_is_named(
    proxy: str, inside: Inside, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setenv("https_proxy", proxy)
    assert "HTTPS_PROXY" in text(refusal(tiny_job(root, seed=181)))


# A19: the end


def test_cancelling_may_be_repeated_and_raced_with_the_start(inside: Inside, root: Path) -> None:
    inside.settings(processes=8)
    job = _sleeper(root)
    handle = f"azureml:{submitted(job)}"
    states = {backend().cancel(handle).state for _ in range(3)}
    assert states <= {"CancelRequested", "Canceled", "Completed"}
    _until(lambda: backend().status(handle).is_terminal)
    assert backend().cancel(handle).state == "Canceled"


def test_a_run_nobody_has_is_no_such_run(inside: Inside) -> None:
    for act in (backend().status, backend().cancel, lambda handle: list(backend().logs(handle))):
        with pytest.raises(NoSuchRunError):
            act("azureml:never-heard-of-it-1")


def _sleeper(root: Path) -> JobSpec:
    (root / "sleep.py").write_text("import time\nprint('asleep', flush=True)\ntime.sleep(60)\n")
    return tiny_job(root, entry={"script": "sleep.py"})


def _until(condition: Any) -> None:
    import time

    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
