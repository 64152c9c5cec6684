"""What linked data is, by content: a digest that changes when a program would read something else.

Files of up to 16 MiB are read in full. Of larger ones the size, the time of the last change (nanoseconds) and 16
blocks of 64 KiB, spread evenly from the first byte to the last, are taken: a corpus of a terabyte has an identity in
seconds. So a large file that is copied without its time counts as other data (a probe too many), and one that is
overwritten in place between the blocks, with size and time put back, is not noticed.

Symbolic links are followed (caches of data sets are made of them); folders count by the names and contents in them,
in byte order, not by where they lie. Nothing is cached.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from bisect_train.core.changes import DataLink, digest_of
from bisect_train.core.errors import InputError
from bisect_train.core.secrets import mask_logins

SMALL_FILE_BYTES = 16 * 2**20
BLOCK_BYTES = 64 * 2**10
NUM_BLOCKS = 16


def digest_links(links: Sequence[DataLink]) -> str:
    """Return the digest of all linked data and of where it lies in the checkout, "" without any.

    Raises:
        InputError: a source is missing, cannot be read, or is neither a file nor a folder.
    """
    if not links:
        return ""
    ordered = sorted(links, key=lambda link: link.target)
    return digest_of([[link.target, digest_source(link)] for link in ordered])


def digest_source(link: DataLink) -> str:
    """Return hex digits that identify what a link leads to; of an address by what its storage says of it.

    Raises:
        InputError: as `digest_path`; or an address cannot be read.
    """
    if not link.is_remote:
        return digest_path(Path(link.source))
    from bisect_train_workers.remote_data import NoDataError, digest_address

    try:
        return digest_address(link.source)
    except NoDataError as error:
        raise InputError(str(error), hint="correct `data.link` in the recipe; fsspec reads addresses") from None
    except (OSError, RuntimeError) as error:
        said = mask_logins(f"{link.source}: cannot read this data: {type(error).__name__}: {error}")
        raise InputError(said, hint="look at the network and at the storage's credentials, then run again") from None


def digest_path(path: Path) -> str:
    """Return 32 hex digits that identify a file or a folder tree by content (see the module).

    Raises:
        InputError: missing, cannot be read, a link that leads nowhere or in a circle, or a special file.
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        for name, kind, content in _entries(path, b"", ()):
            digest.update(b"%s %d %s %s" % (kind, len(name), name, content))
    except OSError as error:
        raise _input_error(path, error) from None
    return digest.hexdigest()


def _entries(path: Path, name: bytes, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield (relative name, kind, digest of the content) of everything in a tree; `above` are the folders it is in."""
    info = path.stat()
    if stat.S_ISREG(info.st_mode):
        yield name, b"file", _digest_file(path, info)
    elif stat.S_ISDIR(info.st_mode):
        here = (info.st_dev, info.st_ino)
        if here in above:
            raise InputError(f"{path}: this link leads back into a folder that it is in", hint="link the data without it")
        yield name, b"folder", b""
        for child in sorted(path.iterdir(), key=os.fsencode):
            yield from _entries(child, name + b"/" + os.fsencode(child.name), (*above, here))
    else:
        raise InputError(f"{path}: this is neither a file nor a folder", hint="link only files and folders as data")


def _digest_file(path: Path, info: os.stat_result) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        if info.st_size <= SMALL_FILE_BYTES:
            while block := file.read(2**20):
                digest.update(block)
            return digest.digest()
        digest.update(b"sampled %d %d " % (info.st_size, info.st_mtime_ns))
        last = info.st_size - BLOCK_BYTES
        for idx in range(NUM_BLOCKS):
            file.seek(last * idx // (NUM_BLOCKS - 1))
            digest.update(file.read(BLOCK_BYTES))
    return digest.digest()


def _input_error(path: Path, error: OSError) -> InputError:
    place = Path(os.fsdecode(error.filename)) if error.filename else path
    if isinstance(error, FileNotFoundError):
        if place.is_symlink():
            return InputError(f"{place}: this link leads nowhere", hint="put the data there or remove the link")
        return InputError(f"{place}: there is no such data", hint="correct `data.link` in the recipe")
    if isinstance(error, PermissionError):
        return InputError(f"{place}: no permission to read this data", hint=f"look at `ls -ld {place}`")
    return InputError(f"{place}: cannot read this data: {error.strerror or error}", hint=f"look at `ls -ld {place}`")
