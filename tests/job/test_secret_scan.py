from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

import launcher
from launcher.job.secret_scan import find_secrets
from tests.job.secrets import planted


@pytest.mark.parametrize("kind", planted(0))
def test_every_kind_is_found_wherever_it_stands(kind: str) -> None:
    for seed in range(20):
        text = f"import os\n\n{planted(seed)[kind]}\nprint(1)\n"
        assert [found.line for found in find_secrets(text.encode())][:1] == [3], text


@pytest.mark.parametrize(
    "line",
    [
        'password = os.environ["DB_PASSWORD"]',
        "token = tokenizer.encode(text, add_special_tokens=False)",
        'api_key = "your-api-key-here-0000"',
        "HF_TOKEN=${HF_TOKEN}",
        "HF_TOKEN: <paste your token>",
        'secret = "changeme12345678"',
        "https://user:" + "{password}@example.com/x",
        "num_key_value_heads: 8",
        "pad_token_id = 50256",
        'eos_token = "<|endoftext|>"',
        "sha256 = 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "git_commit: 5d0c91aa7be2f0130f3e6d6f2e6c4b1f3f2d1c0b",
        "AccountName=devstoreaccount1",
    ],
)
def test_ordinary_lines_are_no_secrets(line: str) -> None:
    assert list(find_secrets(line.encode())) == []


def test_the_find_is_named_by_a_digest_and_never_shown() -> None:
    line = planted(3)["github"]
    found = next(find_secrets(line.encode()))
    assert found.digest not in line
    assert line not in repr(found)


def test_at_most_two_in_a_hundred_files_of_clean_code_are_blocked() -> None:
    standard_library = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(standard_library.glob("*.py")) + sorted(standard_library.glob("[a-j]*/*.py"))
    texts = [path.read_text("utf-8", "replace") for path in files]
    blocked = [path.name for path, text in zip(files, texts, strict=True) if next(find_secrets(text.encode()), None)]
    assert len(blocked) <= 0.02 * len(files), blocked


def test_our_own_source_passes() -> None:
    for path in Path(launcher.__file__).parent.rglob("*.py"):
        assert list(find_secrets(path.read_bytes())) == [], path
