"""Plain requests to Azure with our own time-outs and retries, for what the SDK lacks, hides or answers with None.

(azure-ai-ml 1.35.2: ``Usage`` and ``VmSize`` attributes are None, ``stream()`` calls Canceled a success, a silent
server holds one call for twenty minutes.)
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from launcher.backends.azureml.failure import DoubtError, ExistsError, meaning, translated
from launcher.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from azure.core.credentials import TokenCredential
    from azure.core.pipeline import Pipeline

    from launcher.backends.azureml.patience import Patience

SCOPE = "https://management.azure.com/.default"
_REPEATABLE = frozenset({"GET", "PUT", "POST", "HEAD"})
"""Every POST sent here may be repeated: to cancel, to list secrets, to ask for a place to upload to."""
_TRIES = 3
"""When the answer cannot be understood."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    document: Any
    """JSON; None when the body is empty."""
    headers: Mapping[str, str]

    @property
    def is_found(self) -> bool:
        """Whether there is such a thing."""
        return self.status != 404


class Rest:
    """Requests with a bearer token; a token the service no longer takes is renewed once."""

    def __init__(self, credential: Callable[[], TokenCredential], patience: Patience) -> None:
        self._credential = credential
        self._patience = patience
        self._pipeline: Pipeline[Any, Any] | None = None
        self.clock_skew_seconds = 0.0
        """How far this machine's clock is ahead of the service's."""

    def get(self, url: str, **query: str) -> Answer:
        """Read; a 404 is an answer, everything else that is not success an error."""
        return self._understood("GET", url, query, None)

    def put(self, url: str, body: Any, **query: str) -> Answer:
        """Write something that may be written again."""
        return self._understood("PUT", url, query, body)

    def put_once(self, url: str, body: Any, **query: str) -> Answer:
        """Write something once, with no retry behind it.

        Raises:
            BackendError: refused, or never sent.
            ExistsError: there is such a thing already.
            DoubtError: it may have been accepted.
        """
        doing = f"PUT {_short(url)}"
        answer = self._sent("PUT", url, query, body, doing, retries=0)
        if answer.status == 401:
            self._pipeline = None
            answer = self._sent("PUT", url, query, body, doing, retries=0)
        if answer.status >= 400:
            raise self._meaning(answer, doing)
        if answer.document is None:
            raise DoubtError(f"{doing}: the answer is empty")
        return answer

    def post(self, url: str, body: Any = None, **query: str) -> Answer:
        """Ask for something that is harmless to ask for again."""
        return self._understood("POST", url, query, body)

    def _understood(self, method: str, url: str, query: Mapping[str, str], body: Any) -> Answer:
        doing = f"{method} {_short(url)}"
        answer = self._persistently(method, url, query, body, doing)
        if answer.status == 401:
            self._pipeline = None  # a new credential, a new token
            answer = self._persistently(method, url, query, body, doing)
        if answer.status == 404 or answer.status < 400:
            return answer
        raise self._refusal(answer, doing)

    def _persistently(self, method: str, url: str, query: Mapping[str, str], body: Any, doing: str) -> Answer:
        for attempt in range(1, _TRIES):
            try:
                return self._sent(method, url, query, body, doing)
            except DoubtError:
                self._patience.sleep(self._patience.backoff_seconds * 2**attempt)
        try:
            return self._sent(method, url, query, body, doing)
        except DoubtError as doubt:
            raise _unavailable(doubt) from doubt

    def _sent(
        self, method: str, url: str, query: Mapping[str, str], body: Any, doing: str, *, retries: int | None = None
    ) -> Answer:
        from azure.core.rest import HttpRequest

        with translated(doing):
            request = HttpRequest(method, url, params=dict(query), json=body)
            limit = {} if retries is None else {"retry_total": retries}
            response = self._pipe().run(request, retry_on_methods=_REPEATABLE, **limit).http_response
            self._note_clock(response.headers.get("Date"))
            document = _json(response, doing) if response.content else None
            if document is None and method == "GET":
                raise DoubtError(f"{doing}: the answer is empty")
            return Answer(status=response.status_code, document=document, headers=response.headers)

    def _pipe(self) -> Pipeline[Any, Any]:
        if self._pipeline is None:
            from azure.core import pipeline
            from azure.core.pipeline import policies, transport
            from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy

            self._pipeline = pipeline.Pipeline(
                transport.RequestsTransport(
                    connection_timeout=self._patience.connect_seconds, read_timeout=self._patience.read_seconds
                ),
                policies=[
                    policies.RequestIdPolicy(),
                    policies.UserAgentPolicy(base_user_agent="launcher"),
                    policies.RetryPolicy(
                        retry_total=self._patience.retries,
                        retry_backoff_factor=self._patience.backoff_seconds,
                        retry_backoff_max=self._patience.longest_pause_seconds,
                    ),
                    ARMChallengeAuthenticationPolicy(self._credential(), SCOPE),
                ],
            )
        return self._pipeline

    def _refusal(self, answer: Answer, doing: str) -> BackendError:
        understood = self._meaning(answer, doing)
        return understood if isinstance(understood, BackendError) else _unavailable(understood)

    def _meaning(self, answer: Answer, doing: str) -> BackendError | DoubtError | ExistsError:
        from azure.core.exceptions import ClientAuthenticationError, HttpResponseError

        details = (answer.document or {}).get("error", {}) if isinstance(answer.document, dict) else {}
        message = f"{details.get('message') or answer.status}{self._clock_note()}"
        error: HttpResponseError = (ClientAuthenticationError if answer.status == 401 else HttpResponseError)(message)
        error.status_code = answer.status
        return meaning(error, doing)

    def _note_clock(self, date: str | None) -> None:
        if date:
            self.clock_skew_seconds = time.time() - parsedate_to_datetime(date).timestamp()

    def _clock_note(self) -> str:
        minutes = self.clock_skew_seconds / 60
        if abs(minutes) < 5:
            return ""
        return f"; this machine's clock is {abs(minutes):.0f} min {'ahead' if minutes > 0 else 'behind'}"


def _json(response: Any, doing: str) -> Any:
    """The body as JSON; an HTML page in its place (a portal, a proxy) is no answer."""
    try:
        return response.json()
    except ValueError as error:
        kind = response.headers.get("Content-Type", "no type")
        raise DoubtError(f"{doing}: the answer is no JSON but {kind}") from error


def _short(url: str) -> str:
    return url.partition("?")[0].rpartition("/workspaces/")[2] or url


def _unavailable(error: Exception) -> BackendError:
    return BackendError(str(error), suggestion="try again in a minute", code="azureml.unavailable")
