"""Telling people what was found: a finding -> `Message` -> webhook, chat and e-mail, GitHub. Knows no store and no search."""

from bisect_train.telling.addresses import open_messenger
from bisect_train.telling.composing import compose, is_to_be_told
from bisect_train.telling.message import Author, Message, Tellable
from bisect_train.telling.messenger import Messenger, Receipt

__all__ = [
    "Author",
    "Message",
    "Messenger",
    "Receipt",
    "Tellable",
    "compose",
    "is_to_be_told",
    "open_messenger",
]
