"""Text that somebody else wrote, such as the subject of a commit, as Markdown that only shows it.

GitHub reads Markdown, then HTML, then looks in the text for people (`@name`), issues (`#12`) and addresses. Backslashes and
entities keep text from being the first two; a space of no width keeps it from being the third, as backslashes are gone then.
In a code span or block only its fence counts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

LIMIT = 65_536  # characters of a comment's body. Source: GitHub's own error, "body is too long (maximum is 65536 characters)"
NO_WIDTH = "\u200b"
_ENTITY = "&#8203;"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_CALLS = re.compile(r"(?<=@)(?=[\w-])|(?<=#)(?=\d)|(?i:(?<=\bGH-)(?=\d))|(?<=:)(?=//)|(?i:(?<=\bwww)(?=\.))|(?<=<)(?=[!@#])")
_SPECIAL = re.compile(r"[\\`*_\[\]|~$]")
_STARTS = re.compile(r"^(#+(?=\s|$)|[+-](?=\s|$)|[=-]+$|\d+(?=[.)](?:\s|$)))")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def one_line(text: str, *, limit: int = 2000) -> str:
    """Return text as one line of at most `limit` characters: no control characters, none that turn the reading direction."""
    line = " ".join(clean(text[: 8 * limit]).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def clean(text: str) -> str:
    """Return text without terminal colours, control and format characters; lines and tabs stay, what is no text is `?`."""
    text = _ANSI.sub("", text.encode("utf-8", "replace").decode("utf-8"))
    return "".join(letter for letter in text if letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf", "Co"))


def tame(text: str, *, limit: int = 2000) -> str:
    """Return one line of plain text that calls nobody and links nothing, for chat and e-mail as well."""
    return _CALLS.sub(NO_WIDTH, one_line(text, limit=limit))


def plain(text: str, *, limit: int = 2000) -> str:
    """Return one line of Markdown that shows exactly this text, in a paragraph, a list or a table."""
    line = _SPECIAL.sub(r"\\\g<0>", tame(text, limit=limit))
    line = re.sub("[&<>]", lambda found: _ENTITIES[found[0]], line)
    return _STARTS.sub(_escape_start, line).replace(NO_WIDTH, _ENTITY)


def _escape_start(found: re.Match[str]) -> str:
    return f"{found[1]}\\" if found[1][0].isdigit() else f"\\{found[1]}"


def code(text: str, *, limit: int = 200) -> str:
    """Return a code span with this text, "" without text; in a table too."""
    line = one_line(text, limit=limit).replace("|", "¦")  # a table would end its cell at a bar, in a code span as well
    if not line:
        return ""
    fence = "`" * (_longest_run(line) + 1)
    pad = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def code_block(text: str, *, language: str = "", limit: int = 8000) -> str:
    """Return a code block with this text, cut at a line where it is longer than `limit` characters."""
    body = clean(text).rstrip()
    if len(body) > limit:
        body = body[:limit].rpartition("\n")[0] or body[:limit]
        body += "\n[cut]"
    fence = "`" * max(3, _longest_run(body) + 1)
    return f"{fence}{language}\n{body}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """Return a table of cells that are Markdown already; `numbers` are the columns that are set to the right."""
    rule = ["---:" if idx in numbers else "---" for idx in range(len(columns))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows))


def bullets(lines: Sequence[str]) -> str:
    """Return a list of lines that are Markdown already."""
    return "\n".join(f"- {line}" for line in lines)


def details(title: str, body: str) -> str:
    """Return a part that is folded up; `title` is a text of ours."""
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>"


def fit(blocks: Sequence[str], last: str, *, limit: int = LIMIT) -> str:
    """Return the blocks and the last line; where that is too long, the blocks at the end that fill it are left out.

    Args:
        blocks: the most important first.
        last: a line that is always there.
        limit: characters; one outside the basic plane counts as two, as in JavaScript.
    """
    kept = [block for block in blocks if block]
    left_out = 0
    while True:
        note = [f"*{left_out} part{'s' if left_out > 1 else ''} left out: too long for one message.*"] if left_out else []
        text = "\n\n".join([*kept, *note, last])
        if width(text) <= limit or not kept:
            return text
        kept.pop()
        left_out += 1


def width(text: str) -> int:
    """Return the length of a text in UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
