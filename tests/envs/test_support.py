"""What travels into every sandbox worker can stand there alone."""

from __future__ import annotations

import ast
import sys

import pytest

from spade_daemon.envs.support import support_sources


@pytest.mark.parametrize("name", support_sources())
def test_support_is_standard_library_only_and_says_what_it_offers(name: str) -> None:
    tree = ast.parse(support_sources()[name])
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module.partition(".")[0] for module in imported} <= set(sys.stdlib_module_names) | set(support_sources())
    assert any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" for node in tree.body)


def test_the_tool_base_class_is_offered() -> None:
    assert "ToolUseEnv" in support_sources()["spade_env"]
