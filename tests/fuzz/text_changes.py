"""Changes of text and bytes that know nothing of a format but its marks: what editors, disks and attackers do to files."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

Random = random.Random

NUMBERS = (
    *("0", "-0", "-1", "1e308", "1e999", "-1e-999", "NaN", "nan", "inf", "-Infinity", "0x1F", "1_000", "1,5", "٣", "1.", ".5"),
    *("9223372036854775808", "-9223372036854775809", "4294967296", "9" * 40, "9" * 400, "1e-7", "1E+5", "00012", "0b1", "1:30"),
    *("2024-13-45", "2024-02-30T25:61:61Z", "0001-01-01", "9" * 5000),
)
MARKS = (
    *("\0", "\x01", "\x07", "\x1b[31m", "\x1b]0;", "\x7f", "\x85", "\u2028", "\u202e", "\u200b", "\ufeff", "\ufffe", "\uffff"),
    *(
        "\r",
        "\n",
        "\r\n",
        "\t",
        "\v",
        "\f",
        " ",
        "\xa0",
        "\u3000",
        "é",
        "ß",
        "İ",
        "日本",
        "🙂",
        "\U0010ffff",
        "\ud800",
        "\udcff",
    ),
    *("{", "}", "[", "]", "(", ")", "<", ">", "{}", "[]", "()", ":", ": ", ",", ";", "=", "==", "#", " #", "&", "&a ", "*a"),
    *("!!int ", "!!float ", "!!bool ", "!!set ", "!!omap ", "!!pairs ", "!!null ", "!!seq ", "!!map ", "!!str ", "!x "),
    *("*", "**", "!!", "!!python/object:os.system", "!!binary ", "!!timestamp ", "|", ">", "|-", "---", "...", "- ", "? ", "%"),
    *(
        "'",
        '"',
        "'''",
        '"""',
        "\\",
        "\\\n",
        "\\x",
        "\\u",
        "\\ud800",
        "\\N{",
        "`",
        "~",
        "$",
        "${",
        "${a}",
        "${oc.env:HOME}",
        "@",
    ),
    *(
        "//",
        "/*",
        "*/",
        "../",
        "/",
        "~/",
        "-",
        "--",
        "--x=",
        "+",
        "<<: *a",
        "null",
        "true",
        "yes",
        "None",
        "undefined",
        "__class__",
    ),
    *("@@ -1,99999999999 +1 @@", "diff --git a/x b/x", "index ", "Binary files", "\\ No newline at end of file"),
    *("Traceback (most recent call last):\n", '  File "x", line 1, in f\n', "Error: ", "loss nan", "step ", "%s", "%n", "{0}"),
)
BOMB = (
    "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b]\n"
    "d: &d [*c, *c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d, *d]\nf: &f [*e, *e, *e, *e, *e, *e, *e]\n"
    "command: *f\ndependencies: *f\npackage: *f\nsaved: *f\nhydra: *f\ndefault: *f\nplatforms: *f\n"
)
"""YAML of a few lines that stands for millions of values."""
OPENERS = (("[", "]"), ("{", "}"), ("(", ")"), ('{"a":', "}"), ("- ", ""), ("a:\n ", ""), ("-", ""), ("not ", ""), ("<<", ">>"))
_NUMBER = re.compile(r"[-+]?\d[\d_.,eE+-]*")
_WORD = re.compile(r"\w+")


def change_text(rng: Random, text: str, others: Sequence[str], *, marks: Sequence[str] = MARKS) -> str:
    """Return a text with one to five changes.

    Args:
        rng: decides.
        text: to begin with.
        others: texts whose parts are put in.
        marks: of the format, put in as well.
    """
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4, 5))):
        text = rng.choice(_CHANGES)(rng, text, others, marks)
    if rng.random() < 0.004:
        text = _lengthen(rng, text, marks)
    return text[:600_000]


def change_bytes(rng: Random, data: bytes, others: Sequence[bytes], *, marks: Sequence[str] = MARKS) -> bytes:
    """Return bytes changed as text, as bits, or by another encoding."""
    if rng.random() < 0.7:
        text = change_text(rng, to_text(data), [to_text(item) for item in others[:3]], marks=marks)
        data = to_bytes(text)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        data = rng.choice(_BYTE_CHANGES)(rng, data)
    return data


def to_text(data: bytes) -> str:
    """Return bytes as text; those that are no UTF-8 are lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def to_bytes(text: str) -> bytes:
    """Return text as bytes, whatever surrogates it has."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _span(rng: Random, text: str | bytes, most: int = 60) -> tuple[int, int]:
    start = rng.randrange(len(text) + 1)
    return start, min(len(text), start + rng.randrange(1, most))


def _delete(rng: Random, text: str, others: Sequence[str], marks: Sequence[str]) -> str:
    start, end = _span(rng, text)
    return text[:start] + text[end:]


def _double(rng: Random, text: str, others: Sequence[str], marks: Sequence[str]) -> str:
    start, end = _span(rng, text)
    return text[:end] + text[start:end] * rng.choice((1, 1, 2, 5, 20)) + text[end:]


def _insert(rng: Random, text: str, others: Sequence[str], marks: Sequence[str]) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(marks) * rng.choice((1, 1, 1, 2, 10)) + text[at:]


def _replace(rng: Random, text: str, others: Sequence[str], marks: Sequence[str]) -> str:
    start, end = _span(rng, text, 4)
    return text[:start] + rng.choice(marks) + text[end:]


def _splice(rng: Random, text: str, others: Sequence[str], marks: Sequence[str]) -> str:
    other = rng.choice(others) if others else text
    start, end = _span(rng, other, 200)
    at = rng.randrange(len(text) + 1)
    return text[:at] + other[start:end] + text[at + rng.choice((0, 0, end - start)) :]


def _number(rng: Random, text: str, others: Sequence[str], marks: Sequence[str]) -> str:
    return _substitute(rng, text, _NUMBER, NUMBERS)


def _word(rng: Random, text: str, others: Sequence[str], marks: Sequence[str]) -> str:
    known = _WORD.findall(rng.choice(others)[:2000] if others else text) or ["x"]
    return _substitute(rng, text, _WORD, (*marks, *known))


def _substitute(rng: Random, text: str, what: re.Pattern[str], by: Sequence[str]) -> str:
    found = list(what.finditer(text))
    if not found:
        return text + rng.choice(by)
    place = rng.choice(found)
    return text[: place.start()] + rng.choice(by) + text[place.end() :]


def _lines(rng: Random, text: str, others: Sequence[str], marks: Sequence[str]) -> str:
    lines = text.split("\n")
    one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            del lines[one]
        case 1:
            lines.insert(two, lines[one])
        case 2:
            lines[one], lines[two] = lines[two], lines[one]
        case 3:
            lines[one] = " " * rng.randrange(9) + lines[one].strip()
        case 4:
            lines.insert(one, rng.choice(rng.choice(others).split("\n")) if others else "")
        case _:
            lines[one] += lines[two]
    return "\n".join(lines)


def _truncate(rng: Random, text: str, others: Sequence[str], marks: Sequence[str]) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] if rng.random() < 0.8 else text[at:]


def _nest(rng: Random, text: str, others: Sequence[str], marks: Sequence[str]) -> str:
    start, end = _span(rng, text, 20)
    num = rng.choice((1, 2, 5, 30, 120, 120, 400)) if rng.random() < 0.9 else 3000
    opener, closer = rng.choice(OPENERS)
    if rng.random() < 0.1:
        closer = ""
    return text[:start] + opener * num + text[start:end] + closer * num + text[end:]


def _ends(rng: Random, text: str, others: Sequence[str], marks: Sequence[str]) -> str:
    match rng.randrange(4):
        case 0:
            return "\ufeff" + text
        case 1:
            return text.replace("\n", rng.choice(("\r\n", "\r", "\u2028", "\x0b")))
        case 2:
            return text.replace("  ", "\t")
        case _:
            return rng.choice(others) + text if others else text


def _lengthen(rng: Random, text: str, marks: Sequence[str]) -> str:
    """Return a text in which some piece comes so often that work that grows with its square shows."""
    start, end = _span(rng, text, rng.choice((2, 8, 40)))
    piece = rng.choice((text[start:end] or "a", rng.choice(marks), rng.choice("a0 -_.:[({'\"\\\n")))
    at = rng.randrange(len(text) + 1)
    return text[:at] + piece * (rng.choice((20_000, 60_000, 200_000)) // len(piece)) + text[at:]


_CHANGES: tuple[Callable[[Random, str, Sequence[str], Sequence[str]], str], ...] = (
    *(_delete, _double, _insert, _insert, _replace, _replace, _splice, _splice),
    *(_number, _number, _word, _word, _lines, _lines, _truncate, _nest, _ends),
)


def _flip(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8)) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _set_bytes(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice((b"\0", b"\xff", b"\x80", b"\xff" * 8, b"\0" * 8, rng.randbytes(4))) + data[at + 4 :]


def _cut(rng: Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _encode(rng: Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    encoding = rng.choice(("utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig", "utf-7"))
    return text.encode(encoding, "replace")


_BYTE_CHANGES: tuple[Callable[[Random, bytes], bytes], ...] = (_flip, _flip, _set_bytes, _set_bytes, _cut, _encode)
