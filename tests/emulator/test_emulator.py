"""What the emulator does for a client that knows nothing of it: the real SDK, or plain HTTPS."""

from __future__ import annotations

import os
import ssl
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from launcher.emulator.blobs import Blobs, blob_url
from launcher.emulator.settings import Settings

if TYPE_CHECKING:
    from tests.emulated import Inside

requests = pytest.importorskip("requests", reason="the azure extra is not installed")
WORKSPACE = f"https://management.azure.com{Settings().workspace_path}"
VERSION = {"api-version": "2023-04-01"}


def token(**form: str) -> Any:
    settings = Settings()
    tenant = form.pop("tenant", settings.tenant)
    form = {
        "client_id": settings.client_id,
        "client_secret": settings.client_secret,
        "scope": "https://management.azure.com/.default",
        "grant_type": "client_credentials",
        **form,
    }
    return requests.post(f"https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token", data=form, timeout=10)


def ask(method: str, url: str, **arguments: Any) -> Any:
    headers = {"Authorization": f"Bearer {token().json()['access_token']}"}
    return requests.request(method, url, params=VERSION, headers=headers, timeout=20, **arguments)


def direct() -> Any:
    session = requests.Session()
    session.trust_env = False
    return session


def command_job(command: str, *, nodes: int = 1, processes: int = 1, **properties: Any) -> dict[str, Any]:
    return {
        "properties": {
            "jobType": "Command",
            "command": command,
            "distribution": {"distributionType": "PyTorch", "processCountPerInstance": processes},
            "resources": {"instanceCount": nodes, "instanceType": "Standard_D4s_v3"},
            "outputs": {"run": {"jobOutputType": "uri_folder", "mode": "ReadWriteMount"}},
            **properties,
        }
    }


def submit(inside: Inside, name: str, body: dict[str, Any]) -> None:
    inside.settings(processes=8)
    assert ask("PUT", f"{WORKSPACE}/jobs/{name}", json=body).status_code == 201


def wait_for(inside: Inside, name: str, *states: str) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while (job := inside.ask("jobs")[name])["state"] not in states:
        assert time.monotonic() < deadline, job
        time.sleep(0.05)
    return dict(job)


def wait_until_printed(name: str, text: str) -> None:
    """A shell that has not run its first line yet dies of the signal it means to catch."""
    deadline = time.monotonic() + 30
    while True:
        try:
            if text in log(name, "user_logs/std_log.txt"):
                return
        except KeyError:
            assert time.monotonic() < deadline
        time.sleep(0.05)


def log(name: str, path: str) -> str:
    details = ask(
        "GET", f"https://westeurope.api.azureml.ms/history/v1.0{Settings().workspace_path}/runs/{name}/details"
    )
    return str(requests.get(details.json()["logFiles"][path], timeout=10).text)


def test_an_unmodified_client_reaches_it_and_trusts_its_certificate(inside: Inside) -> None:
    assert ask("GET", WORKSPACE).json()["properties"]["provisioningState"] == "Succeeded"


def test_a_client_that_trusts_it_trusts_nobody_else(inside: Inside) -> None:
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    assert len(context.get_ca_certs()) == 1
    assert context.get_ca_certs()[0]["subject"] == ((("commonName", "launcher emulator"),),)


def test_a_host_it_does_not_stand_for_is_not_reached(inside: Inside) -> None:
    with pytest.raises(requests.exceptions.SSLError):
        requests.get("https://example.com", timeout=10)


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ({"client_secret": "wrong"}, "AADSTS7000215"),
        ({"client_id": "unknown"}, "AADSTS700016"),
        ({"tenant": "11111111-1111-1111-1111-111111111111"}, "AADSTS90002"),
    ],
)
def test_sign_in_refuses_what_microsoft_refuses(form: dict[str, str], code: str, inside: Inside) -> None:
    answer = token(**form)
    assert answer.status_code == 400
    assert code in answer.json()["error_description"]


def test_no_token_an_expired_one_and_a_foreign_one_are_401(inside: Inside) -> None:
    inside.ask("token-lifetime", seconds=0)
    expired = token().json()["access_token"]
    for header in ({}, {"Authorization": f"Bearer {expired}"}, {"Authorization": "Bearer a.b.c"}):
        answer = requests.get(WORKSPACE, params=VERSION, headers=header, timeout=10)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer ")


def test_another_workspace_group_or_subscription_is_404_with_the_services_words(inside: Inside) -> None:
    for wrong, code in (
        (WORKSPACE.replace("emulated-workspace", "other"), "ResourceNotFound"),
        (WORKSPACE.replace("emulated-group", "other"), "ResourceGroupNotFound"),
        (WORKSPACE.replace("000000000001", "000000000002"), "SubscriptionNotFound"),
    ):
        answer = ask("GET", wrong)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, code)


def test_a_job_runs_as_real_processes_with_azure_mls_variables(inside: Inside) -> None:
    printed = "echo $RANK/$WORLD_SIZE node $NODE_RANK local $LOCAL_RANK $AZUREML_RUN_ID $AZUREML_PROCESS_NAME"
    submit(inside, "ranks", command_job(printed, nodes=2, processes=2))

    job = wait_for(inside, "ranks", "Completed", "Failed")

    assert job["state"] == "Completed"
    assert list(job["times"]) == ["NotStarted", "Starting", "Preparing", "Running", "Finalizing", "Completed"]
    assert log("ranks", "user_logs/std_log_process_03.txt") == "3/4 node 1 local 1 ranks rank_3\n"


def test_templates_are_filled_in_the_command_and_nowhere_else(inside: Inside) -> None:
    body = command_job("echo $OUT; echo ${{outputs.run}}", environmentVariables={"OUT": "${{outputs.run}}"})
    submit(inside, "templates", body)
    wait_for(inside, "templates", "Completed")
    literal, path = log("templates", "user_logs/std_log.txt").splitlines()
    assert literal == "${{outputs.run}}"
    assert path.startswith("/")


def test_nothing_of_this_machines_environment_leaks_into_a_job(inside: Inside) -> None:
    submit(inside, "clean", command_job("env"))
    wait_for(inside, "clean", "Completed")
    printed = log("clean", "user_logs/std_log.txt")
    assert "AZURE_CLIENT_SECRET" not in printed
    assert "HTTPS_PROXY" not in printed


def test_what_a_job_writes_to_its_output_is_a_blob_afterwards_and_the_next_job_sees_it(inside: Inside) -> None:
    uri = "azureml://datastores/workspaceblobstore/paths/shared/folder"
    outputs = {"run": {"jobOutputType": "uri_folder", "mode": "ReadWriteMount", "uri": uri}}
    submit(inside, "writes", command_job("echo 41 > ${{outputs.run}}/step", outputs=outputs))
    wait_for(inside, "writes", "Completed")
    assert inside.emulator.blobs.get("azureml-blobstore", "shared/folder/step") == b"41\n"

    submit(inside, "reads", command_job("cat ${{outputs.run}}/step", outputs=outputs))
    wait_for(inside, "reads", "Completed")
    assert log("reads", "user_logs/std_log.txt") == "41\n"


def test_an_input_that_is_not_there_fails_the_job_while_it_prepares(inside: Inside) -> None:
    uri = "azureml://datastores/workspaceblobstore/paths/no/such/folder"
    body = command_job("true", inputs={"data": {"jobInputType": "uri_folder", "uri": uri}})
    submit(inside, "no-data", body)
    job = wait_for(inside, "no-data", "Failed")
    assert "data-capability" in job["error"]["message"]
    assert "Running" not in job["times"]


def test_a_rank_that_fails_ends_the_job_and_the_error_names_its_code_and_log(inside: Inside) -> None:
    submit(inside, "fails", command_job("if [ $RANK = 1 ]; then exit 3; else sleep 60; fi", processes=2))
    job = wait_for(inside, "fails", "Failed")
    assert "exited with status code 3" in job["error"]["message"]
    assert "std_log_process_01.txt" in job["error"]["message"]


def test_cancel_ends_the_processes_and_may_be_repeated(inside: Inside) -> None:
    submit(inside, "endless", command_job("trap 'echo told; exit 0' TERM; echo ready; while true; do sleep 0.1; done"))
    wait_until_printed("endless", "ready")
    for _ in range(2):
        assert ask("POST", f"{WORKSPACE}/jobs/endless/cancel").status_code == 202
    wait_for(inside, "endless", "Canceled")
    assert ask("POST", f"{WORKSPACE}/jobs/endless/cancel").status_code == 202
    assert log("endless", "user_logs/std_log.txt").splitlines()[-1] == "told"


def test_a_preempted_job_gets_its_notice_and_ends_as_failed(inside: Inside) -> None:
    trap = "trap 'echo saved > ${{outputs.run}}/checkpoint; exit 0' TERM; echo ready; while true; do sleep 0.1; done"
    submit(inside, "taken", command_job(trap))
    wait_until_printed("taken", "ready")
    inside.ask("preempt", name="taken")
    job = wait_for(inside, "taken", "Failed")
    assert job["error"]["code"] == "JobPreempted"
    assert inside.emulator.blobs.get("azureml-blobstore", "azureml/taken/run/checkpoint") == b"saved\n"


def test_a_job_that_outlives_its_limit_is_canceled(inside: Inside) -> None:
    submit(inside, "slow", command_job("sleep 60", limits={"jobLimitsType": "Command", "timeout": "PT0.5S"}))
    assert wait_for(inside, "slow", "Canceled")["error"]["code"] == "JobTimedOut"


def test_a_job_beyond_capacity_is_queued_with_the_reason_and_runs_when_there_is_room(inside: Inside) -> None:
    submit(inside, "waits", command_job("true", nodes=9))
    assert "9 processes" in wait_for(inside, "waits", "Queued")["waits_for"]
    inside.settings(processes=16)
    wait_for(inside, "waits", "Completed")


def test_a_job_beyond_quota_is_refused_in_the_services_words(inside: Inside) -> None:
    inside.settings(cores_by_family={"standardDSv3Family": 4})
    answer = ask("PUT", f"{WORKSPACE}/jobs/too-big", json=command_job("true", nodes=2))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "JobNodeCountExceedsCoreQuota")
    assert "job node count of 2 which maps to 8 vCPUs" in answer.json()["error"]["message"]  # 2 x 4 vCPUs


def test_usages_and_sizes_are_those_of_the_catalogue(inside: Inside) -> None:
    base = f"https://management.azure.com/subscriptions/{Settings().subscription}/providers"
    region = f"{base}/Microsoft.MachineLearningServices/locations/westeurope"
    sizes = {one["name"]: one for one in ask("GET", f"{region}/vmSizes").json()["value"]}
    assert (sizes["Standard_ND96isr_H100_v5"]["gpus"], sizes["Standard_ND96isr_H100_v5"]["vCPUs"]) == (8, 96)
    usages = {one["name"]["value"]: one for one in ask("GET", f"{region}/usages").json()["value"]}
    assert usages["standardDSv3Family"]["limit"] == 20_000


@pytest.mark.parametrize("policy", ["accepted", "immutable"])
def test_a_second_put_of_a_name_never_makes_a_second_job(policy: str, inside: Inside) -> None:
    inside.settings(repeated_put=policy)
    name, body = f"twice-{policy}", command_job("true")
    codes = [ask("PUT", f"{WORKSPACE}/jobs/{name}", json=body).status_code for _ in range(2)]
    assert codes == [201, 200 if policy == "accepted" else 400]
    assert inside.accepted(name) == [name]
    assert inside.puts(name) == 2


def test_a_second_put_with_another_command_is_refused_as_immutable(inside: Inside) -> None:
    ask("PUT", f"{WORKSPACE}/jobs/other", json=command_job("true"))
    answer = ask("PUT", f"{WORKSPACE}/jobs/other", json=command_job("false"))
    assert answer.status_code == 400
    assert "A job with this name already exists" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("kind", "is_accepted"),
    [("status", False), ("reset_before", False), ("garbage", False), ("status_after", True), ("reset_after", True),
     ("garbage_after", True), ("empty_after", True), ("half_after", True)],
)  # fmt: skip
def test_each_fault_strikes_before_or_after_the_job_is_accepted(kind: str, is_accepted: bool, inside: Inside) -> None:
    name = f"fault-{kind}".replace("_", "-")
    inside.fault(kind, "PUT", f"/jobs/{name}")
    try:
        answer = ask("PUT", f"{WORKSPACE}/jobs/{name}", json=command_job("true"))
        answer.json()
        outcome = answer.status_code
    except requests.RequestException as error:
        outcome = type(error).__name__
    assert outcome != 201
    assert bool(inside.accepted(name)) is is_accepted
    assert inside.ask("faults/hits")


def test_an_accepted_job_can_stay_invisible_for_a_while(inside: Inside) -> None:
    inside.fault("invisible", "PUT", "/jobs/late", seconds=0.6)
    ask("PUT", f"{WORKSPACE}/jobs/late", json=command_job("true"))
    assert ask("GET", f"{WORKSPACE}/jobs/late").status_code == 404
    time.sleep(0.7)
    assert ask("GET", f"{WORKSPACE}/jobs/late").status_code == 200


def test_blobs_go_to_azurite_and_every_byte_is_counted(inside: Inside) -> None:
    inside.ask("traffic/clear")
    inside.emulator.blobs.put("azureml", "hello.txt", b"hello")
    assert requests.get(blob_url("azureml", "hello.txt"), timeout=10).text == "hello"
    assert isinstance(inside.emulator.blobs, Blobs)
    assert any("devstoreaccount1.blob.core.windows.net/azureml/hello.txt" in path for _, path, _ in inside.requests())


def test_an_mlflow_client_finds_the_jobs_run_under_the_jobs_name(inside: Inside) -> None:
    submit(inside, "tracked", command_job("sleep 0.2"))
    base = f"{inside.emulator.address}/api/2.0/mlflow"
    point = {"key": "loss", "value": 2.5, "timestamp": 1, "step": 3}
    body = {"run_id": "tracked", "metrics": [point], "params": [{"key": "lr", "value": "1"}], "tags": []}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    session = direct()
    assert session.post(f"{base}/runs/log-batch", json=body, timeout=10).status_code == 200
    with opener.open(f"{base}/runs/get?run_id=tracked", timeout=10) as answer:
        assert b'"loss"' in answer.read()
    history = session.get(f"{base}/metrics/get-history", params={"run_id": "tracked", "metric_key": "loss"}, timeout=10)
    assert history.json()["metrics"] == [point]


def test_a_fault_nobody_knows_is_refused(inside: Inside) -> None:
    session = direct()
    url = f"{inside.emulator.address}/emulator/faults"
    assert session.post(url, json={"faults": [{"kind": "explode"}]}, timeout=10).status_code == 400
