"""Turns an exception into a signature: equal for the same failure on other commits and machines.

Pure functions; no line numbers, paths, ranks or addresses survive.
"""

from __future__ import annotations

import re
from typing import Sequence

MAX_MESSAGE_CHARS = 300
NUM_FUNCTIONS = 3

# Everything after these is a dump of machine state.
_DUMP = re.compile(r"\n?(Exception raised from|C\+\+ CapturedTraceback|Traceback \(most recent call last\)).*", re.S)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_URL_OR_PATH = re.compile(r"""(?<![\w.])(?:[A-Za-z]:\\|~?/|\.{1,2}/|\w+://)[^\s'"`,;:()\[\]{}<>]*""")
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b")
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b")
_RANK = re.compile(r"(?i)\b((?:local_|global_)?rank|cuda|gpu|pid)\d+\b")
_SHAPE = re.compile(r"\b\d+(?:x\d+)+\b")  # 8x64
# 12, -1.5e-07, 1,000, 2.13.0, 20MiB; not the digits of float16, and each index of layers.3.weight.
_NUMBER = re.compile(r"(?<!\w)(?<!\d\.)[-+]?\d+(?:[,_]\d+)*(?:\.\d+)*(?:[eE][-+]?\d+)?(?=[A-Za-z]{0,3}\b)")


def normalize_message(message: str) -> str:
    """Return the message on one line with paths, addresses and numbers replaced.

    `/tmp/x.py` becomes `<path>`, numbers and addresses become `#`; digits inside names
    (`float16`, `conv1`) stay, those of `rank3` and `cuda0` go.
    """
    text = _DUMP.sub("", _ANSI.sub("", message))
    text = _URL_OR_PATH.sub("<path>", text)
    for pattern in (_UUID, _ADDRESS, _HASH):
        text = pattern.sub("#", text)
    text = _RANK.sub(r"\1#", text)
    text = _SHAPE.sub(lambda match: "x".join("#" * len(match.group().split("x"))), text)
    text = _NUMBER.sub("#", text)
    return " ".join(text.split())[:MAX_MESSAGE_CHARS]


def failure_signature(exc_type: str, normalized: str, functions: Sequence[str]) -> str:
    """Return type, message and innermost functions of the repository as one line.

    Args:
        exc_type: name of the exception; only its last dotted part counts, as classes move.
        normalized: from `normalize_message`.
        functions: names of the functions inside the repository, innermost last.
    """
    where = " > ".join(functions[-NUM_FUNCTIONS:])
    return f"{exc_type.rsplit('.', 1)[-1]}: {normalized} @ {where}"
