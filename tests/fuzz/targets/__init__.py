"""All targets, by name."""

from __future__ import annotations

from tests.fuzz.engine import Target
from tests.fuzz.targets import configs, git_text, metrics, packages, recorded, service, stored_events, telling

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (configs, packages, metrics, recorded, stored_events, git_text, telling, service)
    for target in module.TARGETS
}
