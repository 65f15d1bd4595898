"""Fixtures of the Azure ML tests."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

import pytest

from tests.emulated import inside, running_emulator

__all__ = ["inside", "quiet_sdk", "running_emulator"]

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def quiet_sdk() -> Iterator[None]:
    """azure-ai-ml warns of its own experimental classes and of marshmallow's deprecations when it is imported."""
    logging.getLogger("azure.ai.ml").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
