"""The places of `--tell` as channels of a watch's outbox."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bisect_train.nightly.finding import Finding
from bisect_train.telling import Messenger, Receipt, compose, is_to_be_told, open_messenger

UNCONFIRMED = Receipt("left out", reason="nothing is proved yet: it is told once it is")


@dataclass(frozen=True, slots=True)
class Place:
    """See `bisect_train.nightly.outbox.Channel`; in public (GitHub) nothing is told that is not proved, unless asked for."""

    id: str
    messenger: Messenger
    with_candidates: bool
    mention_authors: bool
    is_public: bool = False

    @property
    def name(self) -> str:
        """The place for a person."""
        return self.messenger.name

    def tell(self, finding: Finding, *, earlier: dict[str, Any] | None) -> dict[str, Any]:
        """See `bisect_train.nightly.outbox.Channel`; where nothing is proved, it says what is worse and names no commit."""
        known = Receipt.of_json(earlier) if earlier is not None else None
        known = known if known is not None and known.is_told else None
        if not is_to_be_told(finding, with_candidates=self.with_candidates):
            if known is None and self.is_public:
                return UNCONFIRMED.to_json()
            finding = replace(finding, candidates=())
        message = compose(finding, mention_authors=self.mention_authors)
        receipt = self.messenger.send(message, earlier=known)
        if not receipt.is_told and known is not None:
            return known.to_json()  # the place keeps what it was told before
        return receipt.to_json()


def places_of(addresses: Sequence[str], *, with_candidates: bool, mention_authors: bool) -> list[Place]:
    """Return the places, known by a digest of their address: the address itself may be a secret.

    Raises:
        InputError: an address cannot be told.
    """
    places = []
    for address in dict.fromkeys(addresses):
        messenger = open_messenger(address, environ=os.environ)
        named = os.environ.get(address.removeprefix("env:"), address) if address.startswith("env:") else address
        digest = hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        is_public = named.startswith("github-")
        places.append(Place(digest, messenger, with_candidates, mention_authors, is_public))
    return places
