"""Access tokens: real JSON web tokens of an issuer nobody trusts, with the fields a client looks at."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

_SIGNING_KEY = b"launcher emulator"
LIFETIME_SECONDS = 3600


def issue(*, audience: str, tenant: str, subject: str, lifetime_seconds: float = LIFETIME_SECONDS) -> str:
    """A token for ``audience``, good for ``lifetime_seconds``."""
    now = int(time.time())
    claims = {
        "aud": audience, "iss": f"https://sts.windows.net/{tenant}/", "tid": tenant, "oid": subject, "appid": subject,
        "iat": now, "nbf": now - 300, "exp": int(now + lifetime_seconds),
    }  # fmt: skip
    signed = f"{_encode({'typ': 'JWT', 'alg': 'HS256'})}.{_encode(claims)}"
    return f"{signed}.{_signature(signed)}"


def claims_of(token: str) -> dict[str, Any] | None:
    """The claims of a token this module has issued; None for any other text."""
    signed, _, signature = token.rpartition(".")
    if not hmac.compare_digest(_signature(signed), signature):
        return None
    payload = signed.partition(".")[2]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return claims


def _encode(document: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def _signature(signed: str) -> str:
    digest = hmac.new(_SIGNING_KEY, signed.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
