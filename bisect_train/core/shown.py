"""Text of strangers as a person may see it: commit subjects, branch names, config values, log lines.

Whoever writes HTML or Markdown escapes it there. What is left are characters that no such escaping touches: commands to a
terminal, other control characters, and marks that turn the direction of text around, so that a line reads as something else.
"""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?")
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """Return the text without terminal colours; other characters that cannot be seen are shown as `\\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    plain = _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", plain)


def one_line(text: str) -> str:
    """Return printable text on one line."""
    return " ".join(printable(text).split())
