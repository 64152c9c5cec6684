"""Places to tell as a nightly watch has them, with the clock and the naps of a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bisect_train.cli.nightly_telling import Place
from bisect_train.telling import open_messenger

NOW_S = 1_800_000_000.0


def open_place(
    address: str,
    *,
    environ: Mapping[str, str],
    sleep: Callable[[float], None],
    with_candidates: bool = False,
    mention_authors: bool = False,
) -> Place:
    """Return the place of an address; it does not sleep by itself."""
    messenger = open_messenger(address, environ=environ, sleep=sleep, clock=lambda: NOW_S)
    return Place(address, messenger, with_candidates, mention_authors, is_public=address.startswith("github-"))
