"""Pictures of pages, made while the documentation is built by the code of the page itself.

A block

    ```{picture} caption
    figure = result.plot()
    ```

goes on where the Python examples above it end, and leaves a Matplotlib figure in ``figure``. The page shows code and
picture; a first line ``:hidden:`` leaves the code out. Pictures are kept in ``docs/made`` until the page or the package
changes.
"""

from __future__ import annotations

import contextlib
import doctest
import hashlib
import io
import json
import re
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MADE = HERE / "made"
FENCE = re.compile(r"^(?P<mark>`{3,})(?P<kind>[\w{}-]*)(?P<title>[^\n]*)\n(?P<body>.*?)^(?P=mark)[ \t]*$", re.M | re.S)


def results(name: str) -> Any:
    """The numbers of a file of bench/results, for pictures of measurements."""
    return json.loads((HERE.parent / "bench" / "results" / f"{name}.json").read_text(encoding="utf-8"))["data"]


def picture_code(body: str) -> tuple[str, bool]:
    """The code of a block, and whether it is shown."""
    return body.removeprefix(":hidden:\n"), not body.startswith(":hidden:\n")


def run(body: str, names: dict[str, Any], path: Path, line: int) -> None:
    """Run a block of Python, as statements or as an interactive session, as if the page were its source."""
    with contextlib.redirect_stdout(io.StringIO()):
        if not body.lstrip().startswith(">>>"):
            exec(compile("\n" * line + body, str(path), "exec"), names)  # noqa: S102  our own pages
            return
        for example in doctest.DocTestParser().get_examples(body):
            with contextlib.suppress(Exception) if example.exc_msg else contextlib.nullcontext():
                exec(compile("\n" * (line + example.lineno) + example.source, str(path), "single"), names)  # noqa: S102


def make(text: str, path: Path, name: str) -> None:
    """Make the pictures of a page."""
    names: dict[str, Any] = {"__name__": "__main__", "results": results}
    count = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block in FENCE.finditer(text):
            line = text[: block.start()].count("\n") + 1
            if block["kind"] == "python":
                run(block["body"], names, path, line)
            elif block["kind"] == "{picture}":
                run(picture_code(block["body"])[0], names, path, line)
                names["figure"].savefig(MADE / f"{name}_{count}.png", dpi=110)
                count += 1


def insert(app: Any, page: str, source: list[str]) -> None:
    """Replace the blocks of a page by code and pictures."""
    text = source[0]
    source[0] = re.sub(r"\n\n```$", "\n```", text, flags=re.M)  # the empty line that ends an interactive session
    if "```{picture}" not in text:
        return
    name = page.replace("/", "_")
    stamp, here = MADE / f"{name}.stamp", hashlib.sha256(text.encode()).hexdigest()
    missing = [p for p in re.findall(r"^% skip-examples-without: (\w+)", text, re.M) if find_spec(p) is None]
    if not missing and not (stamp.exists() and stamp.read_text() == here):
        MADE.mkdir(exist_ok=True)
        make(text, HERE / f"{page}.md", name)
        stamp.write_text(here)
    count = 0

    def shown(block: re.Match[str]) -> str:
        nonlocal count
        if block["kind"] != "{picture}":
            return block[0]
        code, visible = picture_code(block["body"])
        caption, picture = block["title"].strip(), f"/made/{name}_{count}.png"
        count += 1
        listing = f"```python\n{code}```\n\n" if visible else ""
        return listing + ("" if missing else f"```{{figure}} {picture}\n:alt: {caption}\n\n{caption}\n```")

    source[0] = FENCE.sub(shown, source[0])


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", insert)
    return {"parallel_read_safe": True}
