"""The presets against the frameworks' repositories; skipped where no clones are given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.frameworks.check_presets import FOLDER, FRAMEWORKS, Framework, check, clone_of


@pytest.mark.skipif(FOLDER not in os.environ, reason=f"{FOLDER} names no folder with clones of the frameworks")
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.preset)
def test_flags_and_log_lines_are_those_of_the_repository_at_several_ages(framework: Framework) -> None:
    clone = clone_of(framework, Path(os.environ[FOLDER]))
    if clone is None:
        pytest.skip(f"no clone of {framework.repository} in {os.environ[FOLDER]}")
    rows = list(check(framework, clone))
    assert len(rows) >= 3
    assert [row for row in rows if not row.is_fine] == []
