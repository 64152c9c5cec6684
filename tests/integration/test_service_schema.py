"""The OpenAPI document is kept: whatever a client sends, the service answers as it says it would and never with a fault.

Schemathesis makes the requests; the streams are left out, since they do not end (`test_service_feed` has them).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import ServiceLab, served, service_lab, small_repo
from tests.support.simulated_bisection import Lab, drive

MAX_EXAMPLES = 6
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceLab, str]]:
    """A service with one bisection that has its probes and one that waits, and schemathesis's settings for the former."""
    folder = tmp_path_factory.mktemp("schema")
    simulated = Lab.build(folder / "lab", culprit=9)
    with service_lab(folder / "home", small_repo(folder / "repo").path) as made:
        name, _ = drive(simulated, made.store)
        made.submit()
        key = made.store.results(name)[0].key
        known = {"path.bisection_id": name, "path.key": key, "query.left": key, "query.right": key}
        yield made, "[parameters]\n" + "".join(f'"{place}" = "{value}"\n' for place, value in known.items())


@pytest.mark.slow
def test_any_request_is_answered_as_the_document_says(lab: tuple[ServiceLab, str], tmp_path: Path) -> None:
    service, known = lab
    (tmp_path / "schemathesis.toml").write_text(known)
    with served(service.app) as url:
        command = [
            *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/api/v1/openapi.json", f"--checks={CHECKS}"),
            *(
                f"--max-examples={MAX_EXAMPLES}",
                "--phases=examples,coverage,fuzzing",
                "--seed=7",
                "--suppress-health-check=all",
            ),
            *("--exclude-path-regex=/events$", "--no-color", "--generation-database=none"),
        ]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=280, check=False
        )
    said = done.stdout[-6000:] + done.stderr[-2000:]
    assert done.returncode == 0, said
    tested = re.search(r"Tested: +(\d+)", done.stdout)
    assert tested is not None and int(tested[1]) >= 20, said


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
