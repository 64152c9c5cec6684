"""What axe says about a page: nothing, where everybody can use it."""

from __future__ import annotations

from typing import Any

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


def assert_accessible(page: Any, where: str, *, num_rules: int = 15) -> None:
    """Fail with what axe found on a page.

    Args:
        page: of Playwright.
        where: for the message.
        num_rules: more of axe's rules than this must have had something to look at.
    """
    from axe_playwright_python.sync_playwright import Axe

    response = Axe().run(page, options=RULES).response
    assert len(response["passes"]) > num_rules, "axe did not look"
    found = [
        (item["id"], item["nodes"][0]["html"][:200], item["nodes"][0]["failureSummary"]) for item in response["violations"]
    ]
    assert found == [], where
