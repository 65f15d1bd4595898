"""Numbers a person reads: bytes, counts, seconds, dollars. Formatting only; values stay in base units."""

from __future__ import annotations

KIB, MIB, GIB, TIB = (1 << shift for shift in (10, 20, 30, 40))
"""Binary units, bytes. torch and nvidia-smi count in these."""
SECONDS_PER_HOUR = 3600
SECONDS_PER_DAY = 86400


def format_bytes(count: float) -> str:
    """``58.7 GiB``: three significant figures in the largest binary unit below it."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(count) >= unit:
            return f"{_significant(count / unit)} {name}"
    return f"{count:.0f} B"


def format_count(count: float, *, unit: str = "") -> str:
    """``70.6 B``, ``8.39 M``: decimal thousands (k, M, B, T), as the field writes parameters and tokens."""
    for scale, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= scale:
            return f"{_significant(count / scale)} {name}{unit}"
    return f"{_significant(count)}{' ' + unit if unit else ''}"


def format_seconds(seconds: float) -> str:
    """``8.22 s``, ``12 min``, ``4 h 12 m``, ``11.3 days``."""
    if seconds < 0.1:
        return f"{_significant(seconds * 1e3)} ms"
    if seconds < 120:
        return f"{_significant(seconds)} s"
    if seconds < 2 * SECONDS_PER_HOUR:
        return f"{seconds / 60:.0f} min"
    if seconds < 2 * SECONDS_PER_DAY:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours} h {minutes:02d} m"
    return f"{_significant(seconds / SECONDS_PER_DAY)} days"


def format_dollars(dollars: float) -> str:
    """``$1,420``, ``$0.53``: no cents above ten dollars."""
    return f"${dollars:,.0f}" if dollars >= 10 else f"${dollars:,.2f}"


def _significant(value: float) -> str:
    """Three significant figures without an exponent, with thousands separators."""
    magnitude = abs(value)
    digits = 0 if magnitude >= 100 or value == int(value) else 1 if magnitude >= 10 else 2
    if 0 < magnitude < 0.1:
        return f"{value:.2g}"
    return f"{value:,.{digits}f}"
