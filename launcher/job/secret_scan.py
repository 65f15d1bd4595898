"""What a secret looks like in the text of a file.

Patterns do not make a leak impossible (published scanners recall about half to nine tenths, arXiv:2307.00714); the
first wall is that only files git tracks are staged at all (``stage``). This is the second.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, kw_only=True)
class Secret:
    """One find: what it looks like and on which line; never the secret itself."""

    kind: str
    line: int
    """1-based."""
    digest: str
    """First 12 hex digits of the SHA-256 of the matched text: names the find without showing it."""


Form = tuple[str, tuple[bytes, ...], re.Pattern[bytes]]

# Each kind: the words one of which every match contains, and the form its issuer documents or the file format that
# holds it. A file without any of the words is not searched for the form: a plain word is found 100 times faster.
FORMS: tuple[Form, ...] = tuple(
    (kind, tuple(words.encode().split()), re.compile(form.encode()))
    for kind, words, form in (
        (
            "private key",
            "PRIVATE PuTTY-User AGE-SECRET",
            r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
            r"|PuTTY-User-Key-File-\d|AGE-SECRET-KEY-1[0-9A-Z]{20,}",
        ),
        (
            "Azure storage key",
            "ccountKey ccountkey SharedAccessKey sharedaccesskey ACCOUNTKEY",
            r"(?i:accountkey|sharedaccesskey)[=:\s\"']+[A-Za-z0-9+/]{40,}={0,2}",
        ),
        ("Azure shared access signature", "sig=", r"[?&;\"']sig=[A-Za-z0-9%+/]{40,}"),
        ("Azure client secret", "7Q~ 8Q~", r"(?<![\w~.-])[\w~.-]{3}[78]Q~[\w~.-]{30,40}"),
        ("AWS access key", "AKIA ASIA ABIA ACCA", r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b"),
        ("Google API key", "AIza ya29. GOCSPX-", r"\bAIza[\w-]{35}|\bya29\.[\w-]{20,}|\bGOCSPX-[\w-]{20,}"),
        (
            "GitHub token",
            "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
            r"\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{20,}",
        ),
        ("GitLab token", "glpat- gldt- glrt- glcbt- glptt- glsoat-", r"\bgl(?:pat|dt|rt|cbt|ptt|soat)-[\w-]{20,}"),
        ("Hugging Face token", "hf_ api_org_", r"\b(?:hf|api_org)_[A-Za-z0-9]{30,}"),
        (
            "API key",
            "sk- nvapi- sk_live_ rk_live_ sk_test_ gsk_ r8_ xai- pplx- tgp_v1_ dop_v1_ glsa_ SG. dapi wandb_v lin_api_",
            r"\bsk-(?:[a-z]+\d*-)*[\w-]{20,}|\bnvapi-[\w-]{20,}|\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"
            r"|\bgsk_\w{20,}|\br8_\w{30,}|\bxai-\w{30,}|\bpplx-\w{30,}|\btgp_v1_[\w-]{20,}|\bdop_v1_[0-9a-f]{40,}"
            r"|\bglsa_\w{30,}|\bSG\.[\w-]{16,}\.[\w-]{16,}|\bdapi[0-9a-f]{32}\b|\bwandb_v\d_\w{30,}|\blin_api_\w{30,}",
        ),
        (
            "Slack token",
            "xox xapp- hooks.slack.com",
            r"\bxox[a-z]-[\w-]{10,}|\bxapp-\d-[\w-]{10,}|hooks\.slack\.com/services/T\w+/B\w+/\w+",
        ),
        (
            "package registry token",
            "npm_ pypi- dckr_ :_",
            r"\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w-]{40,}|\bdckr_(?:pat|oat)_[\w-]{20,}"
            r"|:_(?:authToken|auth|password)\s*=\s*[^\s${<]{8,}",
        ),
        ("JSON web token", "eyJ", r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
        (
            "authorization header",
            "uthorization AUTHORIZATION",
            r"(?i:authorization)[\"']?\s*[:=]\s*[\"']?(?i:bearer|basic|token)\s+[\w+/.~=-]{16,}",
        ),
        (
            "password in a URL",
            "://",
            r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>{}$]{1,80}:[^\s/:@\"'<>{}$*]{6,}@[\w.-]+",
        ),
        ("netrc password", "password", r"(?m:^)[ \t]*(?:machine\s+\S+\s+)?login\s+\S+\s+password\s+\S+"),
    )
)
_SECRET_NAME = re.compile(
    rb"(?:passw(?:or)?d|passphrase|pwd|secret|token|credential|api[_-]?key"
    rb"|(?:access|account|auth|private|storage|encryption|signing|wandb)[_-]?key)\w*[\"'\]]*[ \t]*(?::|=>?)[ \t]*"
)
"""Searched in the lower-cased text."""
_VALUE = re.compile(
    rb"([\"'])(?P<quoted>[^\"'\n]{8,200})\1|(?P<bare>[^\s\"'`,;(){}\[\]<>$]{12,200})(?=\s*(?:$|[,;}#\n]))"
)
_STANDS_FOR_A_SECRET = re.compile(
    r"(?i)example|placeholder|changeme|change.me|your|dummy|redacted|xxxx|\*\*\*|\.\.\.|<|\$\{|\{\{|%\(|test.?token|/|\s"
)
_PUBLIC = frozenset({"900e6c2bf8ce", "0011cc25eb43"})
"""Azurite's development account key, printed in its documentation."""
_LEAST_BITS_PER_CHARACTER = 3.3  # Shannon entropy; English identifiers of 16 characters stay near 3


def forms_in(content: bytes) -> tuple[Form, ...]:
    """The forms of secrets that ``content`` may hold, by their words: of many files together, most can be ruled out."""
    return tuple(form for form in FORMS if any(word in content for word in form[1]))


def find_secrets(content: bytes, forms: tuple[Form, ...] | None = None) -> Iterator[Secret]:
    """Every secret in the text ``content``; ``forms``: those it may hold, when that is known."""
    for kind, words, form in FORMS if forms is None else forms:
        if any(word in content for word in words):
            for match in form.finditer(content):
                yield from _secret(kind, content, match.start(), match.group())
    yield from _assigned(content)


def _assigned(content: bytes) -> Iterator[Secret]:
    """Values that look drawn at random, given to a name that says secret, token, password or key."""
    for name in _SECRET_NAME.finditer(content.lower()):
        match = _VALUE.match(content, name.end())
        value = (match["quoted"] or match["bare"]) if match else b""
        if _looks_random(value.decode("utf-8", "replace")):
            yield from _secret("a random value under a secret's name", content, name.start(), value)


def _secret(kind: str, content: bytes, start: int, matched: bytes) -> Iterator[Secret]:
    digest = hashlib.sha256(matched).hexdigest()[:12]
    if digest not in _PUBLIC:
        yield Secret(kind=kind, line=content.count(b"\n", 0, start) + 1, digest=digest)


def _looks_random(value: str) -> bool:
    """Letters and digits mixed, as a generator draws them, and no words that stand in for a secret."""
    if _STANDS_FOR_A_SECRET.search(value) or not (re.search(r"\d", value) and re.search(r"[A-Za-z]", value)):
        return False
    counts = Counter(value)
    bits = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return bits >= min(_LEAST_BITS_PER_CHARACTER, math.log2(len(value)) * 0.8)
