"""What the emulator is asked and what it answers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Request:
    """One HTTP request, its host included: one port stands for every service."""

    method: str
    host: str
    path: str
    """Decoded, without the query."""
    query: dict[str, str]
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes = b""

    def document(self) -> dict[str, Any]:
        """The body as JSON; an empty one is an empty object.

        Raises:
            RefusedError: 400, as the service answers what is not JSON.
        """
        try:
            loaded = json.loads(self.body or b"{}")
        except ValueError as error:
            raise RefusedError(400, "InvalidRequestContent", str(error)) from error
        return loaded if isinstance(loaded, dict) else {}


@dataclass(frozen=True, kw_only=True)
class Response:
    """One HTTP answer."""

    status: int = 200
    document: Any = None
    """JSON; None for an empty body."""
    headers: dict[str, str] = field(default_factory=dict)

    def content(self) -> bytes:
        """The body as sent."""
        return b"" if self.document is None else json.dumps(self.document).encode()


class RefusedError(Exception):
    """An answer that is an error, in the shape Azure gives errors."""

    def __init__(self, status: int, code: str, message: str, *, headers: dict[str, str] | None = None) -> None:
        self.response = Response(
            status=status,
            document={"error": {"code": code, "message": message, "details": []}},
            headers=headers or {},
        )
        super().__init__(message)
