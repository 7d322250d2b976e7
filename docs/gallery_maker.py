"""Makes the gallery while the documentation is built: runs each script, keeps its figure and shows its code.

A script is an ordinary program: a docstring whose first line is the title, and code that leaves a Matplotlib figure
in the variable ``figure``.
"""

from __future__ import annotations

import ast
import hashlib
import runpy
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "gallery"
MADE = HERE / "made"


def make(app: Any = None) -> None:
    """Write ``gallery/made/NAME.png`` and ``NAME.md``, and the list of them, for every script that has changed."""
    MADE.mkdir(exist_ok=True)
    names = []
    for script in sorted(HERE.glob("*.py")):
        source = script.read_text(encoding="utf-8")
        docstring = ast.get_docstring(ast.parse(source)) or script.stem
        title, _, text = docstring.partition("\n")
        stamp = hashlib.sha256(source.encode()).hexdigest()
        picture, page = MADE / f"{script.stem}.png", MADE / f"{script.stem}.md"
        if not (picture.exists() and page.exists() and stamp in page.read_text(encoding="utf-8")):
            runpy.run_path(str(script))["figure"].savefig(picture, dpi=110)
            body = source[source.index('"""', 3) + 3 :].strip() if source.startswith('"""') else source
            page.write_text(
                f"# {title}\n\n{text.strip()}\n\n![{title}]({script.stem}.png)\n\n"
                f"```python\n{body}\n```\n\n% {stamp}\n",
                encoding="utf-8",
            )
        names.append((script.stem, title))
    cards = "\n".join(
        f"[![{title}](made/{name}.png)](made/{name}.md)\n[{title}](made/{name}.md)\n" for name, title in names
    )
    listed = "\n".join(f"made/{name}" for name, _ in names)
    index = (
        "# Gallery\n\nPictures made while this documentation was built, each by the few lines of code on its page.\n\n"
        f"{cards}\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"
    )
    target = HERE / "index.md"
    if not target.exists() or target.read_text(encoding="utf-8") != index:
        target.write_text(index, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", make)
    return {"parallel_read_safe": True}
