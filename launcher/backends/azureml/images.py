"""A container image by its content: a tag moves, a digest does not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import requests

_IMAGE = re.compile(r"(?P<host>[\w.-]+\.[\w.-]+(?::\d+)?)/(?P<name>[^:@]+)(?::(?P<tag>[^@]+))?")
_ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_TIMEOUT = (3, 10)


def pinned(image: str) -> str:
    """``image`` with its digest where its registry answers anonymously (Microsoft's does); else as it is."""
    match = _IMAGE.fullmatch(image)
    if "@sha256:" in image or match is None:
        return image
    import requests

    host, name, tag = match["host"], match["name"], match["tag"] or "latest"
    try:
        with requests.Session() as session:
            digest = _digest(session, f"https://{host}/v2/{name}/manifests/{tag}")
    except requests.RequestException:
        return image
    return f"{host}/{name}@{digest}" if digest else image


def _digest(session: requests.Session, url: str) -> str | None:
    """What the registry calls the manifest; it may want an anonymous token first (docker.io, nvcr.io, ghcr.io)."""
    answer = session.head(url, headers={"Accept": _ACCEPT}, timeout=_TIMEOUT)
    if answer.status_code == 401:
        challenge = dict(re.findall(r'(\w+)="([^"]*)"', answer.headers.get("WWW-Authenticate", "")))
        if "realm" not in challenge:
            return None
        query = {name: challenge[name] for name in ("service", "scope") if name in challenge}
        granted = session.get(challenge["realm"], params=query, timeout=_TIMEOUT).json()
        bearer = {"Authorization": f"Bearer {granted.get('token') or granted.get('access_token')}"}
        answer = session.head(url, headers={"Accept": _ACCEPT, **bearer}, timeout=_TIMEOUT)
    return answer.headers.get("Docker-Content-Digest") if answer.status_code == 200 else None
