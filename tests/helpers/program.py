"""What tests of the program share: files to read, ways to run it, and what it must leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys

import numpy as np

PROGRAM = [sys.executable, "-m", "problm"]
MODEL = ("--model", "y ~ a*exp(-b*x) + c")


def write_inputs(path):
    """decay.npy (200,000 rows), decay.csv, a.png, b.png, a.jpg, matches.npz, a COLMAP model and a BAL file."""
    from problm.vision.two_view.simulate import two_views

    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, 200_000)
    y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.1 * rng.standard_normal(x.size)
    np.save(path / "decay.npy", np.c_[x, y])
    np.savetxt(path / "decay.csv", np.c_[x, y][:500], delimiter=",", header="x,y", comments="")
    views = two_views(300, inliers=0.8, seed=1)
    np.savez(path / "matches.npz", x1=views.x1, x2=views.x2)
    np.save(path / "matches.npy", np.c_[views.x1, views.x2])
    _pictures(path)
    _scene(path)
    with contextlib.suppress(ImportError):
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"x": x[:5000], "y": y[:5000]}), path / "decay.parquet", row_group_size=1000)


def _pictures(path):
    from PIL import Image

    y, x = np.mgrid[:120, :160]
    for name, dx, dy in (("a.png", 0, 0), ("b.png", 2, -1), ("a.jpg", 0, 0)):
        shade = 128 + 50 * np.sin((x - dx) / 6) + 40 * np.cos((y - dy) / 8 + (x - dx) / 25)
        Image.fromarray(np.rint(shade).astype(np.uint8)).save(path / name)


def _scene(path):
    from problm.vision.bundle.camera_models import Intrinsics
    from problm.vision.bundle.colmap import write_colmap
    from problm.vision.bundle.reconstruction import Reconstruction

    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, (12, 3))
    camera = Intrinsics("SIMPLE_RADIAL", (800.0, 0.0, 0.0, -0.05))
    turns, shifts = np.tile(np.eye(3), (3, 1, 1)), np.c_[np.linspace(-1, 1, 3), np.zeros(3), np.full(3, 6.0)]
    seen = np.stack([camera.project(points + s) for s in shifts])
    start = Reconstruction.from_arrays(turns, shifts, camera, points + rng.normal(0, 0.02, points.shape), seen)
    write_colmap(start, path / "model")
    cameras = "".join(f"0 0 0 {x} {y} {z} 800 -0.05 0\n" for x, y, z in shifts * [1, -1, -1])
    lines = [f"{i} {j} {seen[i, j, 0]} {-seen[i, j, 1]}" for i in range(3) for j in range(12)]
    tail = "".join(f"{x} {-y} {-z}\n" for x, y, z in points)
    (path / "bal.txt").write_text(f"3 12 36\n{chr(10).join(lines)}\n{cameras}{tail}")


def commands(folder):
    # Tolerances of nothing keep the fit going for a while, whatever the machine.
    fit = ["fit", folder / "decay.npy", *MODEL, "--start", "a=1,b=.2,c=0", "--method", "lm", "--max-iter", "40"]
    return {"fit": fit, "align": ["align", folder / "a.png", folder / "b.png"]}


def whole(path):
    """Whether a file that the program writes is complete."""
    content = path.read_bytes()
    if path.suffix == ".json":
        json.loads(content)
    elif path.suffix == ".png":
        assert content.startswith(b"\x89PNG")
        assert content.endswith(b"IEND\xaeB`\x82"), path
    elif path.suffix == ".html":
        assert content.rstrip().endswith(b"</html>"), path
    else:
        assert content.endswith(b"\n"), path


def check_outputs(out, parts=False):
    """Every file under a final name is complete; temporary ones are left by kill -9 only."""
    found = [p for p in out.rglob("*") if p.is_file()] if out.exists() else []
    for path in found:
        if path.suffix != ".part":
            whole(path)
        else:
            assert parts, path
    return sorted(p.name for p in found if p.suffix != ".part")


def unwatched(**more):
    """The environment, without what makes processes measure their coverage: that writes files too, and swallows a
    signal that comes before the program has begun."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COV")} | more


def call(*args, **options):
    return subprocess.run([*PROGRAM, *map(str, args)], capture_output=True, text=True, timeout=240, **options)


def polite(text):
    assert "Traceback" not in text, text
    assert "Exception ignored" not in text, text
