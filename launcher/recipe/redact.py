"""Secrets are taken out of whatever is shown, logged or shared; the job itself still gets the real value."""

from __future__ import annotations

import re
from typing import Any

REDACTED = "[REDACTED]"
"""Stands where a secret stood. A recipe that still holds it is refused."""

_NAME_WORDS = frozenset(
    {
        "apikey",
        "authorization",
        "bearer",
        "connectionstring",
        "credential",
        "credentials",
        "passphrase",
        "passwd",
        "password",
        "pat",
        "pwd",
        "sas",
        "secret",
        "secrets",
        "sig",
        "signature",
        "token",
    }
)
_NAME_PAIRS = ("api_key", "access_key", "account_key", "connection_string", "private_key", "storage_key")
_HARMLESS = frozenset({"text_key", "ssh_public_key", "public_key"})
_VALUE = re.compile(
    r"hf_[A-Za-z0-9]{10,}"  # Hugging Face
    r"|\b(?:ghp|gho|ghs|ghu|github_pat)_[A-Za-z0-9_]{10,}"  # GitHub
    r"|\bsk-[A-Za-z0-9_-]{16,}"  # OpenAI and alike
    r"|\bAKIA[0-9A-Z]{16}\b"  # AWS access key id
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"  # JSON web token
    r"|(?i:\bbearer\s+)\S+"
    r"|(?i:\b(?:AccountKey|SharedAccessKey|SharedAccessSignature)=)[^;\s]+"
    r"|(?i:(?<=[?&])sig=)[^&\s]+"  # shared access signature of a storage url
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"  # user:password in a url
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*"
)


def redact(value: Any, *, name: str = "") -> Any:
    """``value`` with every secret replaced, at any depth; empty values stay empty, so a missing secret shows."""
    if isinstance(value, dict):
        return {key: redact(item, name=str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return _redact_list(value, name)
    if names_a_secret(name) and isinstance(value, str | int | float) and not isinstance(value, bool):
        return REDACTED if value != "" else value
    return redact_text(value) if isinstance(value, str) else value


def redact_text(text: str) -> str:
    """``text`` with whatever looks like a credential replaced."""
    return _VALUE.sub(REDACTED, text)


def redact_override(word: str) -> str:
    """A ``key=value`` word with its value replaced if the key names a secret."""
    key, equals, value = word.partition("=")
    if equals and value and names_a_secret(key.rsplit(".", 1)[-1]):
        return f"{key}={REDACTED}"
    return redact_text(word)


def names_a_secret(name: str) -> bool:
    """Whether a key or variable of this name holds a credential: ``HF_TOKEN``, ``AZURE_STORAGE_KEY``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_")
    if spaced in _HARMLESS:
        return False
    words = spaced.split("_")
    return bool(_NAME_WORDS & set(words)) or words[-1] == "key" or any(pair in spaced for pair in _NAME_PAIRS)


def _redact_list(items: list[Any] | tuple[Any, ...], name: str) -> list[Any]:
    """A list; the argument after ``--token`` is a secret, as is what follows its ``=``."""
    shown, before = [], name
    for item in items:
        if isinstance(item, str) and item.startswith("-"):
            flag, equals, value = item.partition("=")
            secret = bool(equals and value and names_a_secret(flag.lstrip("-")))
            shown.append(f"{flag}={REDACTED}" if secret else redact_text(item))
            before = name if equals else flag.lstrip("-")
        else:
            shown.append(redact(item, name=before))
            before = name
    return shown
