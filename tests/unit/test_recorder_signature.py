"""Signatures of failures: what differs between machines and commits goes, what names the fault stays."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "workers" / "bisect_train_workers" / "recorder"))

from _bisect_train_recorder.redirect import redirected
from _bisect_train_recorder.settings import Settings
from _bisect_train_recorder.signature import failure_signature, normalize_message


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("mat1 and mat2 shapes cannot be multiplied (8x64 and 32x10)", None),
        ("shape '[2, 16]' is invalid for input of size 31", "shape '[#, #]' is invalid for input of size #"),
        ("expected scalar type Float16 but got float32", "expected scalar type Float16 but got float32"),
        ("no such file: '/home/a/run-3/data.bin'", "no such file: '<path>'"),
        ("no such file: './data/x.bin'", "no such file: '<path>'"),
        ("<object at 0x7f3a2b> is gone", "<object at #> is gone"),
        ("[rank3]: rank 3 of world size 8 failed on cuda:1", "[rank#]: rank # of world size # failed on cuda:#"),
        ("tried to allocate 20.00 MiB, 1.5GiB free", "tried to allocate # MiB, #GiB free"),
        ("loss is -1.5e-07 at layers.3.weight", "loss is # at layers.#.weight"),
        ("missing key(s): layer1.conv2.weight", "missing key(s): layer1.conv2.weight"),
        ("a\n\tb   c\n", "a b c"),
        ("bad\nException raised from foo at /x/y.cpp:12 (most recent call first):\nframe 0", "bad"),
        ("run 1f0c9a7be2 failed", "run # failed"),
    ],
)
def test_normalize_message_keeps_words_and_drops_numbers_paths_and_addresses(message: str, expected: str | None) -> None:
    normalized = normalize_message(message)
    if expected is None:
        assert normalize_message(message.replace("64", "128").replace("8x", "4x")) == normalized
    else:
        assert normalized == expected


def test_normalize_message_is_idempotent_and_bounded() -> None:
    once = normalize_message("x 12 /tmp/a 0xff " * 100)
    assert normalize_message(once) == once
    assert len(once) <= 300


def test_failure_signature_names_the_three_innermost_functions() -> None:
    signature = failure_signature("torch.cuda.OutOfMemoryError", "out", ["main", "train", "step", "forward"])
    assert signature == "OutOfMemoryError: out @ train > step > forward"


def test_settings_shift_seeds_by_a_stride_and_wrap_around() -> None:
    settings = Settings({"out": "/o", "seed_idx": 5000, "base_seed": 7})
    assert settings.seed_shift == 5000 * 1_000_003 % 2**32
    assert settings.initial_seed(rank=2) == (7 + 5000 * 1_000_003 + 2) % 2**32
    assert Settings({"out": "/o"}).seed_shift == 0


def test_settings_checksum_first_every_tenth_and_last_step() -> None:
    settings = Settings({"out": "/o", "steps": 25})
    assert [idx for idx in range(25) if settings.has_checksum(idx)] == [0, 10, 20, 24]
    assert Settings({"out": "/o", "every_step": True}).has_checksum(3)


def test_settings_count_moved_weights_at_each_checksum_only_where_triage_was_asked_for() -> None:
    usual, asked = (Settings({"out": "/o", "steps": 71, "triage": triage}) for triage in (False, True))
    assert [idx for idx in range(0, 71, 10) if usual.has_moved(idx)] == [0, 50, 70]
    assert usual.has_moved(33), "a checksum at exit"
    assert all(asked.has_moved(idx) for idx in range(0, 71, 10))
    assert not Settings({"out": "/o", "checksum_every": 0}).has_checksum(10)


def test_redirected_moves_paths_of_the_repository_and_nothing_else(tmp_path: Path) -> None:
    source, root = str(tmp_path / "repo"), str(tmp_path / "repo" / ".bt" / "checkout")
    assert redirected(f"{source}/src", source, root) == f"{root}/src"
    assert redirected(source, source, root) == root
    assert redirected(f"{source}-other", source, root) is None
    assert redirected(f"{root}/src", source, root) is None, "a checkout inside the repository"
    assert redirected(f"{source}/.venv/lib/python3.11/site-packages", source, root) is None
    assert redirected("relative", source, root) is None
