"""Makes the gallery while the documentation is built: runs each script, keeps its figure and shows its code.

A script is an ordinary program: a docstring whose first line is the title, and code that leaves a Matplotlib figure
in the variable ``figure``.
"""

from __future__ import annotations

import ast
import hashlib
import json
import runpy
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "gallery"
MADE = HERE / "made"


def make(app: Any = None) -> None:
    """Write ``gallery/made/NAME.png`` and ``NAME.md``, and the list of them, for every script that has changed."""
    MADE.mkdir(exist_ok=True)
    maker = Path(__file__).read_text(encoding="utf-8")  # pages are made anew when this file changes
    names = []
    for script in sorted(HERE.glob("*.py")):
        source = script.read_text(encoding="utf-8")
        docstring = ast.get_docstring(ast.parse(source)) or script.stem
        title, _, text = docstring.partition("\n")
        stamp = hashlib.sha256((source + maker).encode()).hexdigest()
        picture, page = MADE / f"{script.stem}.png", MADE / f"{script.stem}.md"
        (MADE / script.name).write_text(source, encoding="utf-8")
        (MADE / f"{script.stem}.ipynb").write_text(notebook(docstring, code_of(source)), encoding="utf-8")
        if not (picture.exists() and page.exists() and stamp in page.read_text(encoding="utf-8")):
            runpy.run_path(str(script))["figure"].savefig(picture, dpi=110)
            page.write_text(
                f"# {title}\n\n{text.strip()}\n\n![{title}]({script.stem}.png)\n\n"
                f"```python\n{code_of(source)}\n```\n\n"
                f"Download: {{download}}`script <{script.name}>`, {{download}}`notebook <{script.stem}.ipynb>`\n\n"
                f"% {stamp}\n",
                encoding="utf-8",
            )
        names.append((script.stem, title))
    cards = "\n".join(
        f'<a href="made/{name}.html"><img src="../_images/{name}.png" alt=""><span>{escape(title)}</span></a>'
        for name, title in names
    )
    listed = "\n".join(f"made/{name}" for name, _ in names)
    index = (
        "# Gallery\n\nPictures made while this documentation was built, each by the few lines of code on its page, as "
        "a script and a notebook to download.\n\n"
        f'```{{raw}} html\n<div class="gallery">\n{cards}\n</div>\n```\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n'
    )
    target = HERE / "index.md"
    if not target.exists() or target.read_text(encoding="utf-8") != index:
        target.write_text(index, encoding="utf-8")


def code_of(source: str) -> str:
    """A script without its docstring."""
    return source[source.index('"""', 3) + 3 :].strip() if source.startswith('"""') else source


def notebook(docstring: str, code: str) -> str:
    """A Jupyter notebook of a title, a text, code, and a last cell that shows the figure."""
    title, _, text = docstring.partition("\n")
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "id": "text", "metadata": {}, "source": f"# {title}\n\n{text.strip()}"}
    ]
    for name, content in (("code", code), ("figure", "figure")):
        cells.append(
            {"cell_type": "code", "id": name, "metadata": {}, "execution_count": None, "outputs": [], "source": content}
        )
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", make)
    return {"parallel_read_safe": True}
