"""Tokens by which users are known.

A token is 32 random bytes, so its SHA-256 is all that is kept and no slow hash is needed: those guard words that people
choose, which can be guessed; 256 random bits cannot, however fast the hash is. A slow one would cost every request tens of
milliseconds. Nor is the hash keyed: who reads the database learns nothing that lets him in, and a key is one more secret
to lose. Tokens are looked up by their hash, so the time that takes tells nothing of a token.
"""

from __future__ import annotations

import hashlib
import secrets

from bisect_train.core.errors import InputError
from bisect_train.store.queue_contract import MIN_TOKEN_CHARS

PREFIX = "bt_"
"""By which scanners for secrets, and people, know what it is."""
_NUM_BYTES = 32
_MAX_CHARS = 1024


def new_token() -> str:
    """Return a new random token."""
    return PREFIX + secrets.token_urlsafe(_NUM_BYTES)


def hash_token(token: str) -> str:
    """Return the SHA-256 of a token, 64 hex digits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def check_token(token: str) -> str:
    """Return a token that was made elsewhere, if it may be used.

    Raises:
        InputError: it is too short to be random, or no plain text; it is not repeated.
    """
    if not MIN_TOKEN_CHARS <= len(token) <= _MAX_CHARS or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(
            f"a token needs {MIN_TOKEN_CHARS} to {_MAX_CHARS} printable ASCII characters without spaces, got {len(token)}",
            hint="make one at random: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    if len(set(token)) < 10:
        raise InputError("a token needs to be random: this one has few different characters", hint="leave it out: one is made")
    return token
