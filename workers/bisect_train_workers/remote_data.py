"""Data by address (`s3://bucket/corpus`, `https://...`), fetched once per node and shared by all probes there.

fsspec does the reading: it knows some fifty kinds of storage. An address is identified by what its storage says of it (size,
tag, time of the last change), so data that are replaced are fetched anew and never mixed with the old ones. The copies lie on
a shelf like environments do, with its locks and its limit. The storage's credentials are each node's own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from bisect_train.core.changes import DataLink, digest_of
from bisect_train.core.probe import ProbeJob
from bisect_train.core.secrets import mask_logins
from bisect_train_workers.data_links import CannotStartError
from bisect_train_workers.node import NodeHome, node_name
from bisect_train_workers.probe_run import LostError
from bisect_train_workers.shelf import Shelf, make_read_only

if TYPE_CHECKING:
    import requests

MAX_BYTES = 500 * 2**30
"""What the fetched data of a node may hold together."""

_SUMS = ("etag", "md5", "md5hash", "content-md5", "crc32c", "digest", "generation")
_TELLING = frozenset([*_SUMS, "size", "mtime", "lastmodified", "last-modified"])
"""What storages say of a file by which a changed one is told, in small letters."""


_WEB_S = 60.0
"""Time that a web server may be silent, seconds."""


class NoDataError(Exception):
    """There is nothing at an address, or this machine cannot read it; the message is for the user."""


@dataclass(frozen=True, slots=True)
class HeldData:
    """A probe's job whose links lead to fetched copies.

    Attributes:
        job: with paths in place of addresses.
        lock_fds: whoever has them open keeps the copies from being removed.
    """

    job: ProbeJob
    lock_fds: tuple[int, ...] = ()


def data_shelf(home: NodeHome, max_bytes: int = MAX_BYTES) -> Shelf:
    """Return where a node keeps what it fetched; what was not used for longest goes when it holds more than `max_bytes`."""
    return Shelf(home.path / "data", max_bytes)


@contextlib.contextmanager
def hold_data(home: NodeHome, job: ProbeJob) -> Iterator[HeldData]:
    """Yield a job with its addresses fetched; the copies stay while they are held.

    Raises:
        CannotStartError: nothing is there, or this node cannot read it.
        LostError: the storage does not answer as it should.
        NodeError: the disk is full or cannot be written.
    """
    with contextlib.ExitStack() as stack:
        links, fds = [], []
        for link in job.settings.links:
            if link.is_remote:
                with _told(link):
                    place, fd = stack.enter_context(_hold(home, link))
                link = dataclasses.replace(link, source=str(place))
                fds.append(fd)
            links.append(link)
        settings = dataclasses.replace(job.settings, links=tuple(links)) if fds else job.settings
        yield HeldData(dataclasses.replace(job, settings=settings), tuple(fds))


def digest_address(address: str) -> str:
    """Return 16 hex digits that change when the data at an address do. Raises NoDataError, OSError."""
    return _look(address)[2]


@contextlib.contextmanager
def _hold(home: NodeHome, link: DataLink) -> Iterator[tuple[Path, int]]:
    storage, path, digest = _look(link.source)
    name = PurePosixPath(path.partition("?")[0].rstrip("/")).name or "data"

    def fill(draft: Path, _lock_fd: int) -> None:
        try:
            storage.get(path, str(draft / name), recursive=storage.isdir(path))
        except PermissionError as error:  # of the storage: the draft is ours
            raise NoDataError(f"{mask_logins(link.source)}: not allowed to read it ({error})") from None
        if not (draft / name).exists():
            raise NoDataError(f"nothing came from {mask_logins(link.source)}")
        make_read_only(draft / name)

    with data_shelf(home).hold(digest, fill) as item:
        yield item.path / name, item.lock_fd


def _look(address: str) -> tuple[Any, str, str]:
    """Return the storage of an address, the path there, and a digest of what is there now."""
    said = mask_logins(address)
    if re.match(r"https?://", address):
        return _see(_Web(), address, address)
    try:
        import fsspec
    except ImportError:
        raise NoDataError(f"{said}: data by address need fsspec; run `pip install 'bisect-train[addresses]'`") from None
    try:
        storage, path = fsspec.core.url_to_fs(address)
        return _see(storage, path, address)
    except (ImportError, ValueError) as error:  # a kind of storage that needs another package, or that there is not
        raise NoDataError(f"{said}: {error}") from None


def _see(storage: Any, path: str, address: str) -> tuple[Any, str, str]:
    said = mask_logins(address)
    try:
        info = storage.info(path)
        found = storage.find(path, detail=True) if info.get("type") == "directory" else {path: info}
    except FileNotFoundError:
        raise NoDataError(f"{said}: there is no such data") from None
    except PermissionError as error:
        raise NoDataError(f"{said}: not allowed to read it ({error})") from None
    return storage, path, digest_of([address, sorted((name, _telling(item)) for name, item in found.items())])


class _Web:
    """Files of web servers, as fsspec's storages offer theirs: its own needs packages that come with neither Ray nor us."""

    def info(self, path: str) -> dict[str, str]:
        with self._answer(path) as answer:
            return {"size": answer.headers.get("Content-Length", ""), **answer.headers}

    def isdir(self, path: str) -> bool:
        return False

    def get(self, path: str, target: str, *, recursive: bool = False) -> None:
        with self._answer(path) as answer, Path(target).open("wb") as file:
            for block in answer.iter_content(2**20):
                file.write(block)

    def _answer(self, path: str) -> requests.Response:
        import requests  # takes a moment, and few need it

        answer = requests.get(path, stream=True, timeout=_WEB_S)
        if answer.status_code in (404, 410):
            raise FileNotFoundError(path)
        if answer.status_code in (401, 403):
            raise PermissionError(f"status {answer.status_code}")
        answer.raise_for_status()
        return answer


def _telling(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    return sorted((name.lower(), str(value)) for name, value in info.items() if name.lower() in _TELLING)


@contextlib.contextmanager
def _told(link: DataLink) -> Iterator[None]:
    """Turn what goes wrong with an address into the errors of a probe; a full disk passes."""
    try:
        yield
    except NoDataError as error:
        raise CannotStartError(f"the data for {link.target} cannot be had on {node_name()}: {error}") from None
    except (OSError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise LostError(f"{mask_logins(link.source)} did not come to {node_name()}: {mask_logins(reason)[:300]}") from error
