"""A private certificate authority, made at start: what lets an unmodified client speak TLS to the emulator.

A client that trusts this authority alone cannot reach the real Azure by mistake: its certificate would not verify.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from launcher.errors import MissingExtraError

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = (
    "localhost",
    "management.azure.com",
    "login.microsoftonline.com",
    "ml.azure.com",
    "graph.microsoft.com",
    "*.blob.core.windows.net",
    "*.dfs.core.windows.net",
    "*.file.core.windows.net",
    "*.api.azureml.ms",
    "*.azureml.ms",
    "*.azurecr.io",
    "mcr.microsoft.com",
)


def make_certificates(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """The authority's certificate for clients to trust, and a server context for every host of ``HOSTS``."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "the emulator needs the package cryptography", suggestion="pip install 'launcher[emulator]'"
        ) from error

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.now(UTC)
    authority_key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = named("launcher emulator")

    def certificate(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
        )

    usage = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    authority = (
        certificate(issuer, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    leaf = (
        certificate(named("localhost"), leaf_key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in HOSTS]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "authority.pem").write_bytes(authority.public_bytes(pem))
    (folder / "chain.pem").write_bytes(leaf.public_bytes(pem) + authority.public_bytes(pem))
    private = leaf_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "leaf.key").touch(mode=0o600)
    (folder / "leaf.key").write_bytes(private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "chain.pem", folder / "leaf.key")
    return folder / "authority.pem", context
