"""Pictures of pages, made while the documentation is built by the code of the page itself.

A block

    ```{picture} caption
    figure = result.plot()
    ```

goes on where the Python examples above it end, and leaves a Matplotlib figure in ``figure``. The page shows code and
picture; a first line ``:hidden:`` leaves the code out. Outputs that a page shortens by dots, because they differ from
machine to machine, are shown in full. Both are kept in ``docs/made`` until the page changes.
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


def run(body: str, names: dict[str, Any], path: Path, line: int) -> list[tuple[str, str]]:
    """Run a block of Python as if the page were its source; return shortened outputs, and the outputs in full."""
    found = []
    if not body.lstrip().startswith(">>>"):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile("\n" * line + body, str(path), "exec"), names)  # noqa: S102  our own pages
        return []
    for example in doctest.DocTestParser().get_examples(body):
        code = compile("\n" * (line + example.lineno) + example.source, str(path), "single")
        expected = contextlib.suppress(Exception) if example.exc_msg else contextlib.nullcontext()
        with contextlib.redirect_stdout(io.StringIO()) as said, expected:
            exec(code, names)  # noqa: S102
        if "..." in example.want and not example.exc_msg:
            found.append((example.want, re.sub(r"^$", "<BLANKLINE>", said.getvalue().rstrip("\n"), flags=re.M) + "\n"))
    return found


def make(text: str, path: Path, name: str) -> list[tuple[str, str]]:
    """Make the pictures of a page; return shortened outputs, and the outputs in full."""
    names: dict[str, Any] = {"__name__": "__main__", "results": results}
    count, outputs = 0, []
    MADE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block in FENCE.finditer(text):
            line = text[: block.start()].count("\n") + 1
            if block["kind"] == "python":
                outputs += run(block["body"], names, path, line)
            elif block["kind"] == "{picture}":
                run(picture_code(block["body"])[0], names, path, line)
                names["figure"].savefig(MADE / f"{name}_{count}.png", dpi=110)
                count += 1
    return outputs


def kept(text: str, path: Path, name: str) -> list[tuple[str, str]]:
    """As `make`, unless that was done for this text."""
    file, digest = MADE / f"{name}.json", hashlib.sha256(text.encode()).hexdigest()
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if known.get("page") != digest:
        known = {"page": digest, "outputs": make(text, path, name)}
        file.write_text(json.dumps(known), encoding="utf-8")
    return [(shortened, whole) for shortened, whole in known["outputs"]]


def insert(app: Any, page: str, source: list[str]) -> None:
    """Replace the blocks of a page by code and pictures, and shortened outputs by whole ones."""
    text = source[0]
    sessions = [b["body"] for b in FENCE.finditer(text) if b["kind"] == "python" and ">>>" in b["body"]]
    shortened = any("..." in e.want for body in sessions for e in doctest.DocTestParser().get_examples(body))
    source[0] = re.sub(r"\n\n```$", "\n```", text, flags=re.M)  # the empty line that ends an interactive session
    if not shortened and "```{picture}" not in text:
        return
    name = page.replace("/", "_")
    missing = [p for p in re.findall(r"^% skip-examples-without: (\w+)", text, re.M) if find_spec(p) is None]
    for short, whole in [] if missing else kept(text, HERE / f"{page}.md", name):
        source[0] = source[0].replace(short.rstrip("\n"), whole.rstrip("\n"), 1)
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
