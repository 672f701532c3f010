"""One run of pytest, the quick tests first: those that start a model server or a trainer come last."""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stable sort: within each of the two halves the order stays as it is."""
    items.sort(key=lambda item: item.get_closest_marker("servers") is not None)
