"""Types of parameters that several routes take."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query

from bisect_train.service.auth import Caller, caller
from bisect_train.service.parts import Parts, parts_of
from bisect_train.service.wire import BISECTION_ID, PROBE_KEY

Id = Annotated[str, Path(pattern=BISECTION_ID, description="A bisection's id, 8 hex digits.")]
Key = Annotated[str, Path(pattern=PROBE_KEY, description="A probe's key, 16 hex digits.")]
Offset = Annotated[int, Query(ge=0, le=10_000_000)]
Limit = Annotated[int, Query(ge=1, le=500)]
Points = Annotated[int, Query(ge=2, le=5_000, description="Points of a curve, at most; every k-th step where there are more.")]
Who = Annotated[Caller, Depends(caller)]
Has = Annotated[Parts, Depends(parts_of)]
