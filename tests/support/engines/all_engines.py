"""All engines by name."""

from __future__ import annotations

import several
import single

ENGINES = {**single.ENGINES, **several.ENGINES}
NUM_RANKS = {**dict.fromkeys(single.ENGINES, 1), **dict.fromkeys(several.ENGINES, 2), "single_reference": 1}
