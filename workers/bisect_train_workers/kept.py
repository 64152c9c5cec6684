"""`--keep`: a probe's checkout and output stay on the node for a person to look at, in place of being used again.

They are moved, not copied: the slot and the private folder that they lay in are made anew by the next probe. Nobody but a
person removes what lies here.
"""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path

from bisect_train_workers.environment import ProbeFolders
from bisect_train_workers.node import NodeError, NodeHome, make_folder, node_name


class NotKeptError(Exception):
    """The folders could not be moved; the message says why. The probe's result is not touched by it."""


def keep_probe(home: NodeHome, job_id: str, folders: ProbeFolders) -> Path:
    """Move the checkout (to `checkout`), the output folder, the log and the records of a probe that has ended.

    Returns:
        The folder that holds them; a probe that is run again gets another one.
    Raises:
        NotKeptError: they could not be moved, or not all of them.
    """
    try:
        folder = _new_folder(home, job_id)
        shutil.move(folders.checkout, folder / "checkout")
        # the lock and what TMPDIR held stay behind and are removed
        for item in [item for item in folders.base.iterdir() if item.name != "lock" and item != folders.tmp]:
            shutil.move(item, folder / item.name)
    except (OSError, NodeError) as error:
        raise NotKeptError(f"could not be kept on {node_name()}: {error}") from error
    return folder


def _new_folder(home: NodeHome, job_id: str) -> Path:
    parent = make_folder(home.path / "kept")
    name = re.sub(r"[^A-Za-z0-9]", "", job_id)[:32] or "probe"
    for number in itertools.count(1):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("unreachable")
