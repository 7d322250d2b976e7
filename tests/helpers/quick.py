"""The tests of what has changed: prints the paths for pytest.

What counts is what differs from the last commit or, where nothing does, the last commit itself. A module is tested by
its own doctests and by the test file of its name, or else by those of its room; anything else by the fast core.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = ("tests/api/test_front_door.py", "tests/solver/test_loop.py", "tests/test_losses.py", "tests/linalg")


def changed() -> list[str]:
    """Files that differ from the last commit, or that it changed."""

    def git(*words: str) -> list[str]:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()

    now = git("diff", "--name-only", "HEAD") + git("ls-files", "--others", "--exclude-standard")
    return now or git("diff", "--name-only", "HEAD~1", "HEAD")


def paths_for(file: str) -> list[str]:
    """Paths that test a file of the project."""
    path = Path(file)
    if path.suffix != ".py" or not (ROOT / path).is_file():
        return []
    if path.parts[0] == "tests":
        return [file] if path.name.startswith("test_") else []
    if path.parts[:2] != ("src", "problm"):
        return []
    room = Path("tests", *path.parts[2:-1])
    named = sorted((ROOT / room).glob(f"test_{path.stem}*.py"))
    here = [str(p.relative_to(ROOT)) for p in named] or (
        [str(room)] if (ROOT / room).is_dir() and room.parts[1:] else []
    )
    return [file, *here]


if __name__ == "__main__":
    found = {path for file in changed() for path in paths_for(file)}
    core = {path for path in CORE if (ROOT / path).exists()}
    print(*sorted(found | core))
