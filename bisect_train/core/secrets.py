"""Keeps secrets out of what is printed, stored for readers or passed on: titles, reports, logs, commands by hand.

A secret is told by the name of what holds it, it is the login in an address, or it looks like a well-known service's token.
What is run is never touched. Any other secret under an innocent name is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

HIDDEN = "(hidden)"

_VARIABLE_PARTS = frozenset(["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS"])
_KEY_WORDS = frozenset([*(part.lower() for part in _VARIABLE_PARTS - {"TOKEN"}), "secrets", "apikey", "authorization"])
_KEYS_OF = frozenset(["api", "access", "secret", "private", "auth", "account", "wandb", "encryption", "signing", "ssh"])
"""Words before `key` that make it a secret; `sort_key`, `image_key` and a bare `key` name columns."""
_TEXT_TOKENS = frozenset(
    [
        *("eos", "bos", "pad", "padding", "unk", "mask", "sep", "cls", "class", "null", "blank", "sot", "eot", "eod"),
        *("start", "stop", "end", "begin", "first", "last", "next", "prev", "prefix", "suffix", "middle", "line", "word"),
        *("image", "img", "audio", "video", "text", "speech", "special", "extra", "added", "placeholder"),
        *("user", "system", "assistant", "tool", "think", "decoder", "source", "target", "lang", "language", "control"),
        *("newline", "additional", "reserved", "per"),
    ]
)
"""Words before `token` that make it a piece of text, as in `eos_token`."""
_LOGIN = re.compile(r"://(?!git@)[^/\s?#]*@")  # up to the last @ of the host's part; `git@` says nothing
_QUERY = re.compile(r"([?&](?:[\w-]*(?:token|secret|password|signature|api_?key)|sig)=)[^&\s#]+", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LINE = re.compile(r"\s*(?:-\s*)?[\"']?([A-Za-z_][\w.-]*)[\"']?\s*[:=]\s*(.*)")
_NAME = re.compile(r"""(?<![\w.-])-{0,2}([A-Za-z_][\w.-]{0,200})(?![\w.-])["']?\s{0,9}[:=]\s{0,9}""")
_FLAG = re.compile(r"(?<![\w.-])(--?[A-Za-z][\w.-]{0,200})(?![\w.-])[\"']?[, \t]{1,9}(?=[^\s,-])")
_VALUE = re.compile(
    r"""(?:Bearer|Basic)\s+[^\s"',;]+|"(?:[^"\\]|\\.)*(?:"|$)|'[^']*(?:'|$)|[^\s,;(){}\[\]"']+""", re.IGNORECASE
)
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[oprsu]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{30,}|xox[abeprs]-[\w-]{10,}"
    r"|sk-[\w-]{32,}|AKIA[0-9A-Z]{16}|AIza[\w-]{35}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+)"
)
"""Tokens of GitHub, GitLab, Hugging Face, Slack, OpenAI and Anthropic, AWS, Google; JSON web tokens."""
_BLOCK = re.compile(r"[:=]\s*([|>][-+\d]*|[\[{(]|[\"']{3}.*)?\s*$")
_ASSIGNMENT = re.compile(r"(-{0,2}[+~]{0,2}[A-Za-z_$][\w.$/@-]*)=(.*)", re.DOTALL)


def is_secret(name: str) -> bool:
    """Return whether a variable's name says that its value is a secret: MY_TOKEN is one, TOKENIZERS_PARALLELISM is not."""
    parts = name.upper().split("_")
    return not _VARIABLE_PARTS.isdisjoint(parts) or parts[-1] in ("KEY", "APIKEY")


def is_secret_key(path: str, value: str = "") -> bool:
    """Return whether a config key or a flag names a secret: `wandb.api_key` and `--hf-token` do, `pad_token` does not.

    Args:
        path: dotted path of a key, or a flag with its dashes.
        value: what it holds, as text; a token that is a number or a switch is none.
    """
    if "." not in path and path == path.upper() and is_secret(path):  # a variable by its looks
        return True
    words = [word.lower() for word in _WORD.findall(path)]
    if not _KEY_WORDS.isdisjoint(words):
        return True
    last, before = (words[-1] if words else ""), (words[-2] if len(words) > 1 else "")
    if last == "key":
        return before in _KEYS_OF
    return last == "token" and before not in _TEXT_TOKENS and not _is_plain(value)


def _is_plain(value: str) -> bool:
    """Return whether a value is a number, a switch or nothing."""
    try:
        float(value)
    except ValueError:
        return value.lower() in ("", "true", "false", "yes", "no", "on", "off", "none", "null")
    return True


def mask_logins(text: str) -> str:
    """Return text with the logins and signatures in its addresses hidden: `https://(hidden)@host/simple`."""
    return _QUERY.sub(rf"\1{HIDDEN}", _LOGIN.sub(f"://{HIDDEN}@", text)) if "://" in text else text


def mask_value(path: str, value: str) -> str:
    """Return a key's or a flag's value for a reader."""
    return HIDDEN if value and is_secret_key(path, value) else mask_logins(value)


def mask_assignment(text: str) -> str:
    """Return `key=value` for a reader; any other text with its logins hidden."""
    found = _ASSIGNMENT.fullmatch(text)
    return f"{found[1]}={mask_value(found[1], found[2])}" if found else mask_logins(text)


def mask_command(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command for a reader: the values of secret flags and assignments, and logins, are hidden."""
    return tuple(_masked(words))


def mask_text(text: str) -> str:
    """Return a config file, or a piece of code, for a reader: line by line, the lines below a hidden key with it."""
    lines: list[str] = []
    depth: int | None = None  # of a key whose value stands in the lines below it
    for line in text.split("\n"):
        inside = len(line) - len(line.lstrip())
        if depth is not None and (inside > depth or not line.strip()):
            continue
        lines.append(mask_line(line))
        depth = inside if lines[-1] != line and _BLOCK.search(line) else None
    return "\n".join(lines)


def mask_line(text: str) -> str:
    """Return a line of a file for a reader: `api_key: (hidden)`."""
    found = _LINE.match(text)
    if found and _holds_secret(found[1], found[2]):
        return text[: found.start(2)].rstrip() + f" {HIDDEN}"
    return mask_logins(_TOKEN.sub(HIDDEN, _mask_pairs(text)))


def _mask_pairs(text: str) -> str:
    """Return a line with what stands behind each name and each flag of a secret hidden, also where that is a value itself."""
    shown, done = [], 0
    for found in sorted([*_NAME.finditer(text), *_FLAG.finditer(text)], key=lambda item: item.start()):
        may_hold = found.start() >= done and is_secret_key(found[1], "?")  # a value can be as long as the rest of the line
        value = _VALUE.match(text, found.end()) if may_hold else None
        if value is not None and _holds_secret(found[1], value[0]):
            shown += [text[done : found.end()], HIDDEN]
            done = value.end()
    return "".join([*shown, text[done:]])


def _holds_secret(name: str, value: str) -> bool:
    return is_secret_key(name, value.strip("\"', \t"))


def _masked(words: Sequence[str]) -> Iterator[str]:
    flag = ""
    for word in words:
        is_value = flag and not word.startswith("-")
        yield mask_value(flag, word) if is_value else mask_assignment(word)
        flag = word if word.startswith("-") and "=" not in word else ""
