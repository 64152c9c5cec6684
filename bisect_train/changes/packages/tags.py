"""The commit of a release: by the tags that packages' repositories usually have."""

from __future__ import annotations

from bisect_train.changes.repository import Repository
from bisect_train.core.errors import RevisionError

_FORMS = ("v{version}", "{version}", "{name}-v{version}", "{name}-{version}", "{name}@{version}", "release-{version}")


def revision_of_release(source: Repository, name: str, version: str) -> str:
    """Return the commit of a release, 40 hex digits.

    Args:
        source: the package's repository.
        name: of the package.
        version: of the release.
    Raises:
        RevisionError: no tag of the usual forms names it.
    """
    tags = [form.format(name=name, version=version) for form in _FORMS]
    for tag in tags:
        try:
            return source.resolve(f"refs/tags/{tag}")
        except RevisionError:
            continue
    raise RevisionError(
        f"{source.root} has no tag for {name} {version} (tried {', '.join(tags[:4])} ...)",
        hint=f"`git -C {source.root} tag v{version} COMMIT` gives it one, or fetch the tags",
    )
