"""Each part of the show, where there is a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.outcome import NO_CUDA, Setting, has_cuda
from tests.gpu.show import PARTS, load_part


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not has_cuda(), reason=NO_CUDA)
@pytest.mark.parametrize("name", PARTS)
def test_part_shows_what_it_should_on_a_gpu(name: str, tmp_path: Path) -> None:
    outcome = load_part(PARTS[name])(Setting("cuda", tmp_path, rounds=2))
    assert outcome.is_fine, outcome.said
