from __future__ import annotations

import sys

import pytest

from bisect_train_workers.late import LateModule


def test_late_module_is_imported_when_something_of_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    late = LateModule("colorsys")
    assert "colorsys" not in sys.modules
    assert late.rgb_to_hsv(1.0, 0.0, 0.0) == (0.0, 1.0, 1.0)
    assert "colorsys" in sys.modules


def test_late_module_that_is_not_there_says_so_at_its_use() -> None:
    late = LateModule("not_a_module_of_anybody")
    with pytest.raises(ModuleNotFoundError, match="not_a_module_of_anybody"):
        late.anything  # noqa: B018
