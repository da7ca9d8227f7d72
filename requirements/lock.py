"""Writes the locked requirements, or checks that they are those of pyproject.toml.

Called by `make lock` and `make check`. Each file's first line holds a digest of
the tables that it was made from, so that the check needs no network.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OPTIONS = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--quiet"]
FILES = {
    # In this order: what a run uses has the same versions in development.
    "run.txt": ["pyproject.toml", "--extra", "local", "--group", "build"],
    "dev.txt": ["pyproject.toml", "--all-extras", "--group", "dev", "--constraint", "requirements/run.txt"],
    "uv.txt": ["-", "--constraint", "requirements/dev.txt"],
    # Of the images: what is in them was under test.
    "build.txt": ["--group", "build", "--constraint", "requirements/dev.txt"],
    "runner.txt": [
        "pyproject.toml",
        "--extra",
        "models",
        "--extra",
        "mcp",
        "--constraint",
        "requirements/dev.txt",
    ],
    "operator.txt": ["pyproject.toml", "--extra", "operator", "--constraint", "requirements/dev.txt"],
}


def first_line() -> str:
    """What the files' first line has to be."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        tables = tomllib.load(file)
    project = tables["project"]
    parts = [
        project["requires-python"],
        project["dependencies"],
        project["optional-dependencies"],
        tables["dependency-groups"],
        FILES,
    ]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return f"# By `make lock`, from the dependencies whose digest is {digest[:32]}\n"


def lock(upgrade: bool) -> None:
    """Writes all files; versions stay where they can unless `upgrade`."""
    line = first_line()
    for name, source in FILES.items():
        target = HERE / name
        command = ["uv", "pip", "compile", *source, *OPTIONS, *(["--upgrade"] if upgrade else [])]
        subprocess.run(
            [*command, "--output-file", str(target)], cwd=ROOT, check=True, text=True, input="uv\n"
        )
        target.write_text(line + target.read_text())


def _rows(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True) if path.exists() else []


def check() -> int:
    """0 when the files fit pyproject.toml."""
    line = first_line()
    stale = [name for name in FILES if _rows(HERE / name)[:1] != [line]]
    if stale:
        print(f"requirements/{', '.join(stale)}: not those of pyproject.toml any more; run `make lock`")
    return 1 if stale else 0


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(check())
    lock(upgrade="--upgrade" in sys.argv)
