"""A stand-in for the recorder that needs no torch: same files, same settings, steps told by `fake_training.step`."""

import json
import sys
from pathlib import Path

_SETTINGS = Path(__file__).resolve().parent / "settings.json"

if _SETTINGS.exists():
    import _fake_session

    _fake_session.start(_SETTINGS, sys, json)
