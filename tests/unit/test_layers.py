"""Who may import whom: `.importlinter` holds, and would notice if it did not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINTER = Path(sys.executable).with_name("lint-imports")

BREACHES = {
    "runner/agentrun/proto/breach.py": "import agentrun.log",
    "runner/agentrun/graph/breach.py": "import agentrun.models.base",
    "runner/agentrun/models/breach.py": "import agentrun.tools.other",
    "runner/agentrun/tools/breach.py": "import agentrun.models.other",
    "runner/agentrun/pod/breach.py": "import kubernetes",
    "runner/agentrun/cli/breach.py": "import agentrun_api, asyncpg",
    "operator/agentrun_operator/breach.py": "import agentrun.graph, kopf",
    "api/agentrun_api/breach.py": "import agentrun_operator",
    # These are allowed.
    "runner/agentrun/models/other.py": "import agentrun.tools.base",
    "runner/agentrun/tools/other.py": "import agentrun.models.base",
    "runner/agentrun/log/other.py": "import asyncpg",
    "operator/agentrun_operator/app.py": "import kopf",
    "operator/agentrun_operator/kube.py": "import kubernetes",
}


def lint(root: Path) -> str:
    """What the linter says of a tree's packages."""
    packages = os.pathsep.join(str(root / part) for part in ("runner", "operator", "api"))
    done = subprocess.run(
        [LINTER, "--no-cache", str(ROOT / ".importlinter")],
        cwd=root,
        env=os.environ | {"PYTHONPATH": packages},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_the_layers_hold() -> None:
    said = lint(ROOT)
    assert " 0 broken." in said, said


def test_a_breach_of_every_rule_is_noticed(tmp_path: Path) -> None:
    for part in ("runner", "operator", "api"):
        for package in (ROOT / part).glob("*/**/__init__.py"):
            place = tmp_path / package.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
    for seam in ("models/base.py", "tools/base.py", "client.py"):
        shutil.copy(ROOT / "runner/agentrun" / seam, tmp_path / "runner/agentrun" / seam)
    for name, line in BREACHES.items():
        (tmp_path / name).write_text(line + "\n")
    said = lint(tmp_path)
    assert " 0 kept, 10 broken." in said, said
    allowed = [name for name in BREACHES if not name.endswith("breach.py")]
    for name in allowed:
        module = ".".join(Path(name).with_suffix("").parts[1:])
        assert f"{module} -> " not in said, said


def test_a_runner_pod_loads_neither_kopf_nor_kubernetes() -> None:
    script = (
        "import importlib, pkgutil, sys, agentrun.pod as pod\n"
        "for module in pkgutil.walk_packages(pod.__path__, 'agentrun.pod.'):\n"
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)\n"
        "print(sorted({'kopf', 'kubernetes', 'agentrun_operator', 'agentrun_api'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
