"""Packages laid over the inherited environment: a folder that holds only them and comes first on the program's path.

The program's own interpreter installs them, without their dependencies, into a folder that is addressed by what goes
into it: requirements, the content of local wheels, interpreter. Probes share it and nobody writes to it again. Byte
code is made once, checked by content: probes write none, and each of their processes would compile anew.

What a folder on PYTHONPATH cannot do: `.pth` files in it are not read, and a package that the inherited environment has
cannot be taken away. It wins over editable installs through `.pth` files and through setuptools' finder, which python
asks after the path; finders that put themselves first (scikit-build-core, meson-python) win over it. So each overlay is
tried once: what is imported from elsewhere cannot be laid over, and the probe says so.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.changes import digest_of
from bisect_train_workers import overlay_check
from bisect_train_workers.installed import Inherited, find_inherited
from bisect_train_workers.node import NodeHome
from bisect_train_workers.overlay_inputs import local_inputs
from bisect_train_workers.overlay_install import PackageRequest, install
from bisect_train_workers.shelf import Shelf, make_read_only

__all__ = ["Overlay", "PackageRequest", "hold_overlay", "overlay_shelf"]

MAX_BYTES = 20 * 2**30
"""What the overlays of a node may hold together."""
FACTS = "overlay.json"


@dataclass(frozen=True, slots=True)
class Overlay:
    """An overlay that is ready.

    Attributes:
        path: the folder for the program's path.
        digest: of the content that was laid and of the inherited environment, 16 hex digits; the same on every node.
        packages: `name==version` of what was laid, by name.
        warnings: things that a reader of the report should know.
        lock_fd: whoever has it open keeps the overlay from being removed.
    """

    path: Path
    digest: str
    packages: tuple[str, ...]
    warnings: tuple[str, ...]
    lock_fd: int


def overlay_shelf(home: NodeHome, max_bytes: int = MAX_BYTES) -> Shelf:
    """Return where a node keeps its overlays; the ones not used for longest go when they hold more than `max_bytes`."""
    return Shelf(home.path / "overlays", max_bytes)


@contextlib.contextmanager
def hold_overlay(home: NodeHome, request: PackageRequest) -> Iterator[Overlay]:
    """Yield the overlay of a request, built if need be; it is not removed while it is held.

    Raises:
        CannotStartError: it cannot be installed, or its packages do not go together.
        NodeError: the disk is full or cannot be written.
    """
    inherited = find_inherited(request.python)

    def fill(draft: Path, lock_fd: int) -> None:
        _fill(draft, request, inherited, lock_fd=lock_fd)

    with overlay_shelf(home).hold(_key(request, inherited), fill) as item:
        facts = json.loads((item.path / FACTS).read_text(encoding="utf-8"))
        yield Overlay(
            path=item.path / "site-packages",
            digest=facts["digest"],
            packages=tuple(facts["packages"]),
            warnings=tuple(facts["warnings"]),
            lock_fd=item.lock_fd,
        )


def _key(request: PackageRequest, inherited: Inherited) -> str:
    """Return the digest of all that decides what an overlay holds, and what it was checked against."""
    return digest_of(
        [
            sorted(request.requirements),
            local_inputs(request.requirements, request.find_links),
            [place for place in request.find_links if "://" in place],
            request.index,
            request.python,
            inherited.identity,
        ]
    )


def _fill(draft: Path, request: PackageRequest, inherited: Inherited, *, lock_fd: int) -> None:
    """Install into a new folder, check what was laid and write what is known about it."""
    site = draft / "site-packages"
    site.mkdir()
    install(request, draft, hold=lock_fd)
    laid = overlay_check.read_laid(site)
    overlay_check.refuse_conflicts(laid, inherited)
    overlay_check.refuse_shadowed(request.python, site, laid)
    facts = {
        "digest": digest_of([overlay_check.content_of(laid), inherited.identity]),
        "packages": [f"{item.name}=={item.version}" for item in laid],
        "warnings": overlay_check.find_broken(laid, inherited),
    }
    (draft / FACTS).write_text(json.dumps(facts), encoding="utf-8")
    make_read_only(site)
