"""The demo corpus: *Persuasion* by Jane Austen, 1818, the whole novel in its 24 chapters.

Public domain everywhere that protects works for 100 years after the author's death or less: Jane Austen died in 1817.
The plain text is the one of the CRAN package janeaustenr 1.0.0 (Julia Silge, MIT; Debian ``r-cran-janeaustenr``),
its lines joined by newlines and otherwise unchanged; it carries no licence text and no trademark.
"""

from __future__ import annotations

from pathlib import Path

DEMO_TEXT = Path(__file__).with_name("demo.txt")
"""466,854 bytes of ASCII, one document."""
