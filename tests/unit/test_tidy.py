"""The tree stays small-grained and free of what must not be in it."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE_LINES_MAX = 350
FUNCTION_LINES_MAX = 70
SOURCES = sorted(
    path
    for part in ("runner", "operator", "api")
    for path in (ROOT / part).rglob("*.py")
    if not path.name.endswith("_pb2.py")
)
# In two parts each, so that this file does not name them either.
REGISTRY_HOSTS = [
    f"{name}.{end}"
    for name, end in {
        "pypi": "org",
        "pythonhosted": "org",
        "npmjs": "org",
        "crates": "io",
        "proxy.golang": "org",
        "maven": "org",
        "deb.debian": "org",
    }.items()
]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module", params=SOURCES, ids=named)
def source(request: pytest.FixtureRequest) -> Path:
    path = request.param
    assert isinstance(path, Path)
    return path


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Each function's name and its lines, from its `def` to its end."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_modules_and_functions_are_short_and_modules_say_what_they_are_for(source: Path) -> None:
    text = source.read_text()
    assert len(text.splitlines()) <= MODULE_LINES_MAX, f"{named(source)} has grown too long: split it"
    tree = ast.parse(text)
    long = [f"{name} ({lines} lines)" for name, lines in functions(tree) if lines > FUNCTION_LINES_MAX]
    assert not long, f"in {named(source)}, too long: {', '.join(long)}"
    if tree.body:  # an empty __init__.py has nothing to say
        assert ast.get_docstring(tree), f"{named(source)} has no docstring"


def test_the_folder_operator_is_no_package() -> None:
    # It would shadow the standard library's module.
    assert not (ROOT / "operator/__init__.py").exists()


def test_no_file_names_a_package_registrys_host() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git clone")
    naming = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and not path.is_symlink():
            text = path.read_text(errors="replace").lower()
            naming += [f"{name}: {host}" for host in REGISTRY_HOSTS if host in text]
    assert not naming
