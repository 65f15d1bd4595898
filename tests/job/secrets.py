"""Secrets for the tests, drawn at run time: a repository that held them would rightly be refused by its own scan."""

from __future__ import annotations

import base64
import json
import random
import string

_ALPHANUMERIC = string.ascii_letters + string.digits


def drawn(length: int, rng: random.Random, alphabet: str = _ALPHANUMERIC) -> str:
    """``length`` characters; a digit and both cases are always among them."""
    return "7aK" + "".join(rng.choice(alphabet) for _ in range(length - 3))


def _base64(length: int, rng: random.Random) -> str:
    return base64.b64encode(rng.randbytes(length)).decode()


def _jwt(rng: random.Random) -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": drawn(12, rng), "exp": 1}, {"s": drawn(30, rng)})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


def _pem(kind: str, rng: random.Random) -> str:
    dashes = "-" * 5
    return f"{dashes}BEGIN {kind}{dashes}\n{_base64(400, rng)}\n{dashes}END {kind}{dashes}"


def planted(seed: int) -> dict[str, str]:
    """Kind -> a line or block of text that leaks it, in the forms their issuers document."""
    rng = random.Random(seed)
    key_kind = "PRIVATE " + "KEY"
    return {
        "rsa key": _pem(f"RSA {key_kind}", rng),
        "openssh key": _pem(f"OPENSSH {key_kind}", rng),
        "pkcs8 key": _pem(key_kind, rng),
        "pgp key": _pem(f"PGP {key_kind} BLOCK", rng),
        "azure storage": f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={_base64(64, rng)};",
        "azure sas": f"https://a.blob.core.windows.net/c?sv=2024-01-01&sp=r&sig={_base64(32, rng).replace('+', '%2B')}",
        "azure client": f"client = '{drawn(3, rng)}8Q~{drawn(34, rng)}'",
        "service bus": f"Endpoint=sb://a.net/;SharedAccessKeyName=n;SharedAccessKey={_base64(32, rng)}",
        "aws id": f"aws_access_key_id = AKIA{drawn(16, rng).upper()[:16]}",
        "aws secret": f"aws_secret_access_key = {drawn(40, rng)}",
        "google": f"key: AIza{drawn(35, rng)}",
        "github": f"ghp_{drawn(36, rng)}",
        "github fine": f"github_pat_{drawn(22, rng)}_{drawn(59, rng)}",
        "gitlab": f"glpat-{drawn(20, rng)}",
        "hugging face": f"HF_TOKEN=hf_{drawn(34, rng)}",
        "openai": f"sk-proj-{drawn(48, rng)}",
        "anthropic": f"sk-ant-api03-{drawn(80, rng)}",
        "slack": f"xoxb-{rng.randrange(10**11)}-{drawn(24, rng)}",
        "npm": f"//registry.npmjs.org/:_authToken=npm_{drawn(36, rng)}",
        "pypi": f"pypi-{drawn(80, rng)}",
        "jwt": f"token: {_jwt(rng)}",
        "bearer": f"headers = {{'Authorization': 'Bearer {drawn(40, rng)}'}}",
        "url": f"postgresql://admin:{drawn(16, rng)}@db.internal:5432/x",
        "netrc": f"machine api.wandb.ai login user password {drawn(40, rng, '0123456789abcdef')}",
        "wandb": f"WANDB_API_KEY={drawn(40, rng, '0123456789abcdef').lower()}",
        "password": f'password = "{drawn(18, rng)}"',
        "yaml secret": f"client_secret: {drawn(32, rng)}",
        "json key": f'{{"api_key": "{drawn(32, rng)}"}}',
        "databricks": f"dapi{drawn(32, rng, '0123456789abcdef').lower().replace('k', '0')}",
        "sendgrid": f"SG.{drawn(22, rng)}.{drawn(43, rng)}",
        "stripe": f"sk_live_{drawn(24, rng)}",
        "nvidia": f"nvapi-{drawn(64, rng)}",
    }
