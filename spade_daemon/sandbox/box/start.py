"""Entry of the fresh process: load this folder as the package ``box``, then run one of its two programs.

``start.py serve`` is the fork server. ``start.py probe`` tries what a set of walls holds back; it runs the
probes of this folder and nothing else, so no program here ever runs foreign code behind fewer than all walls.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def main() -> None:
    """Bind the package by path: neither ``sys.path`` nor the environment decides what is loaded."""
    folder = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        "box", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise SystemExit(f"cannot load {folder}: the installation is incomplete")
    package = importlib.util.module_from_spec(spec)
    sys.modules["box"] = package
    spec.loader.exec_module(package)
    program = {"serve": "box.forkserver", "probe": "box.wallcheck"}[sys.argv[1]]
    importlib.import_module(program).main()


if __name__ == "__main__":
    main()
