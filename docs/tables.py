"""Writes the page of tables, ``reference/tables.md``, from the code: models, losses, warps, cameras, policies."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

TARGET = Path(__file__).parent / "reference" / "tables.md"


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines) + "\n"


def first_line(thing: Any) -> str:
    """The first sentence of a docstring, with MyST's backticks."""
    text = (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")
    return text.replace("``", "`").removesuffix(".")


def models() -> str:
    from problm.models.ready_made import CURVES

    rows = []
    for name, maker in sorted(CURVES.items()):
        needed = [p for p in inspect.signature(maker).parameters.values() if p.default is p.empty]
        parameters = "" if needed else ", ".join(f"`{p}`" for p in maker().parameters)
        rows.append([f"`{name}`", first_line(maker), parameters])
    return table(["model", "curve", "parameters"], rows)


def losses() -> str:
    from problm.losses import RULES

    far = np.array([1.0, 9.0, 100.0])  # squares of 1, 3 and 10 scales
    rows = []
    for name, rule in RULES.items():
        weights = " ".join(f"{w:.2g}" for w in rule.value_and_weight(far)[1])
        bound = "no" if math.isinf(rule.bound) else f"{rule.bound:g}"
        rows.append([f"`{name}`", weights, f"{rule.width:g}", bound])
    return table(["loss", "weights at 1, 3 and 10 scales", "scale for noise of 1", "bounded by"], rows)


def warps() -> str:
    from problm.vision.alignment.warps import DIMENSIONS

    kept = {
        "translation": "orientation and size",
        "euclidean": "lengths and angles",
        "similarity": "angles",
        "affine": "parallel lines",
        "homography": "straight lines",
        "sl3": "straight lines; the homography with unit determinant",
    }
    return table(["warp", "parameters", "keeps"], ([f"`{n}`", str(d), kept[n]] for n, d in DIMENSIONS.items()))


def cameras() -> str:
    from problm.vision.bundle.camera_models import MODELS

    return table(["camera model", "parameters"], ([f"`{n}`", f"`{' '.join(m.parameters)}`"] for n, m in MODELS.items()))


def policies() -> str:
    from problm.solver.policies import POLICIES

    rows = []
    for name, maker in POLICIES.items():
        made = maker()
        bound = getattr(made, "bound", "") if not inspect.isclass(maker) else ""
        rows.append([f"`{name}`", first_line(type(made)) + (f"; its bound is `{bound}`" if bound else "")])
    return table(["policy", "test of a step"], rows)


def content() -> str:
    """The page."""
    parts = [
        "# Tables", "Made from the code while this documentation was built.",
        "## Models", "Curves of `problm.models`; they can be added, multiplied and tied.", models(),
        "## Losses", "Values of `loss=`; z is the squared norm of a residual block over the squared scale.", losses(),
        "## Warps", "Values of `model=` of `problm.align` and `problm.Tracker`.", warps(),
        "## Camera models", "COLMAP's, for `problm.Intrinsics`, calibration, poses and bundles.", cameras(),
        "## Acceptance policies", "Values of `acceptance=`.", policies(),
    ]  # fmt: skip
    return "\n\n".join(parts)


def write(app: Any = None) -> None:
    text = content()
    if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        TARGET.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
