"""What a node tells about itself."""

from __future__ import annotations

import os
from pathlib import Path

from bisect_train_workers.node_facts import count_cpus, find_node_facts
from tests.support.probes import make_settings


def test_facts_name_the_hardware_and_the_packages() -> None:
    facts = find_node_facts(make_settings())
    assert facts.hardware_class and not facts.error
    assert facts.interpreter.startswith("python 3.") and "packages" in facts.interpreter
    assert facts == find_node_facts(make_settings())


def test_facts_of_an_unknown_interpreter_say_so(tmp_path: Path) -> None:
    assert "/no/such/python" in find_node_facts(make_settings(python="/no/such/python")).error
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    broken.chmod(0o755)
    assert "it is broken" in find_node_facts(make_settings(python=str(broken))).error


def test_count_cpus_is_at_most_what_may_be_used() -> None:
    assert 1 <= count_cpus() <= (os.cpu_count() or 1)
