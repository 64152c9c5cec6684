"""A part that a machine lacks: a skip that says so, a failure where it has to be there."""

from __future__ import annotations

import pytest

from tests.needs import NEED_VARIABLE, need


@pytest.mark.parametrize("given", ["", "browser", "postgresql"])
def test_missing_part_is_skipped_with_its_reason(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(NEED_VARIABLE, given)
    with pytest.raises(pytest.skip.Exception, match="it is not installed"):
        need("postgres", "it is not installed")


@pytest.mark.parametrize("given", ["postgres", "postgres,browser"])
def test_missing_part_fails_where_it_has_to_be_there(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(NEED_VARIABLE, given)
    with pytest.raises(pytest.fail.Exception, match="it is not installed"):
        need("postgres", "it is not installed")
