"""Sizes and ages as a person writes and reads them."""

from __future__ import annotations

import pytest

from bisect_train.core.amounts import parse_age_s, parse_size, say_age, say_size


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("0", 0),
        ("20GB", 20 * 10**9),
        ("1.5 kb", 1500),
        ("2GiB", 2**31),
        ("7", 7),
        ("3M", 3_000_000),
        ("1TiB", 2**40),
        ("9B", 9),
    ],
)
def test_size_is_read_in_bytes(text: str, num_bytes: int) -> None:
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1 apple", "1XB", "1e9", "5i", "20 G B"])
def test_size_that_is_none_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(ValueError, match="20GB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "age_s"), [("30d", 2_592_000.0), ("0", 0.0), ("1.5h", 5400.0), ("2w", 1_209_600.0), ("9s", 9.0)]
)
def test_age_is_read_in_seconds(text: str, age_s: float) -> None:
    assert parse_age_s(text) == age_s


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "1d2h"])
def test_age_that_is_none_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(ValueError, match="30d"):
        parse_age_s(text)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (12_345, "12.3 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_size_is_said_in_its_largest_unit(num_bytes: int, text: str) -> None:
    assert say_size(num_bytes) == text


@pytest.mark.parametrize(
    ("age_s", "text"), [(-3.0, "0 s"), (59.0, "59 s"), (60.0, "1 min"), (7300.0, "2 h"), (900_000.0, "10 d")]
)
def test_age_is_said_in_its_largest_unit(age_s: float, text: str) -> None:
    assert say_age(age_s) == text
