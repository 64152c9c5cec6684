"""The recorder: watches a training program from the inside and writes one JSON line per step.

It is loaded by `sitecustomize.py` beside this package, or by torch's backend entry points where
that file is shadowed. Rules for every module here: valid python 3.8, standard library only,
torch only once the program itself has imported it, never raise into the program, never draw from
a random generator, never change a number.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Optional

VERSION = "5"
SETTINGS_NAME = "settings.json"

_session: Optional[Any] = None


def start(channel: str) -> Optional[Any]:
    """Start recording in this process, once; later calls return the session that runs already.

    Args:
        channel: what loaded the recorder, "sitecustomize" or "torch.backends".
    Returns:
        The session, or None where no settings file lies beside the package.
    Raises:
        Exception: the settings are unreadable or the record file cannot be opened.
    """
    global _session
    if _session is None:
        folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        path = os.path.join(folder, SETTINGS_NAME)
        if os.path.exists(path):
            from . import bootstrap

            _session = bootstrap.start_session(path, channel)
    return _session


def start_from_torch_backends() -> None:
    """Entry point of group `torch.backends`, called by torch >= 2.5 near the end of its import."""
    try:
        start("torch.backends")
    except Exception as error:  # torch turns any exception here into a failed import
        sys.stderr.write(f"bisect-train: the recorder did not start: {error!r}\n")
