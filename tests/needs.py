"""What some tests need of the machine: a missing part skips them, and fails them where it has to be there."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

NEED_VARIABLE = "BISECT_TRAIN_TESTS_NEED"
"""Parts that have to be there, with commas between: `postgres,browser`. `.ci/run` sets it."""


def need(part: str, reason: str) -> NoReturn:
    """Leave the running test because a part is missing: it is skipped, or fails where the part has to be there.

    Args:
        part: `postgres` or `browser`.
        reason: what is missing.
    """
    if part in os.environ.get(NEED_VARIABLE, "").split(","):
        pytest.fail(f"{reason}; {NEED_VARIABLE} says that {part} has to be there", pytrace=False)
    pytest.skip(reason)
