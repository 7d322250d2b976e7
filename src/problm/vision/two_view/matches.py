r"""Matches and intrinsics: reading them from files, and checking them before any work.

Matches are two arrays ``x1``, ``x2`` of shape (N, 2): row i of the one corresponds to row i of the other. They are used
in place (float64 or float32, any stride); only lens distortion makes a copy.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...jit import types
from ...jit.njit import njit
from ...support.files import open_regular, refuse_holes, text_lines, written_numbers
from ...support.memory import as_bytes
from ...support.npy import load_arrays

Array = NDArray[np.float64]
Points = NDArray[Any]

_TEXT_TO_MEMORY = 20  # bytes of memory per byte of text while reading, as lists of floats
_LONGEST_LINE = 1 << 20  # characters
_LARGEST_CAMERA = 1 << 20  # bytes of a file of camera matrices
_LOOK_AT = 1_000  # first rows, which are close in memory, for cheap checks of the geometry
_LARGEST_TANGENT = 10.0  # of the angle between a ray and the optical axis: 84 degrees
_CHECK_UP_TO = 100_000  # rows up to which every number is checked; above, the solver names the first bad row it reads


def check_matches(x1: ArrayLike, x2: ArrayLike, minimum: int, what: str) -> tuple[Points, Points]:
    """Return matches as two (N, 2) arrays of floats; raise ValueError if something is wrong with them.

    Parameters
    ----------
    x1, x2 : (N, 2) points of image 1 and image 2.
    minimum : smallest number of matches.
    what : name of the model, for messages.
    """
    points = []
    for name, x in (("x1", x1), ("x2", x2)):
        if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
            raise ValueError(f"{name} holds masked values: remove their rows from x1 and x2")
        array = np.asarray(keypoint_pixels(x))
        if array.dtype.kind not in "fiu":
            raise ValueError(f"{name} must hold numbers, got dtype {array.dtype}")
        if array.ndim == 3 and array.shape[1:] == (1, 2):  # OpenCV's
            array = array[:, 0]
        if array.ndim != 2 or array.shape[1] != 2:
            hint = ""
            if array.ndim == 2 and array.shape[0] == 2:
                hint = f"; transpose it ({name}.T)"
            elif array.ndim == 2 and array.shape[1] == 3:
                hint = f"; divide homogeneous points by their last coordinate and keep {name}[:, :2]"
            raise ValueError(f"{name} must have the shape (N, 2), one point per row, got {array.shape}{hint}")
        if array.dtype.char not in "df" or not array.dtype.isnative:
            array = array.astype(np.float64)
        points.append(array)
    a, b = points
    if len(a) != len(b):
        raise ValueError(f"x1 and x2 must have one row per match, but x1 has {len(a)} and x2 has {len(b)}")
    if len(a) < minimum:
        raise ValueError(f"{what}: at least {minimum} matches are needed, got {len(a)}")
    for name, array in (("x1", a), ("x2", b)):
        few = array if len(a) <= _CHECK_UP_TO else array[:_LOOK_AT]
        state = _look(few.astype(np.float64, copy=False))
        if state == _NOT_FINITE:
            bad = np.flatnonzero(~(np.abs(array) < _LARGEST).all(axis=1))
            raise ValueError(
                f"{name} row {bad[0]} is {array[bad[0]].tolist()}: remove matches that are not finite ({len(bad)} rows)"
            )
        if state != _SPREAD and (few is array or _look(array.astype(np.float64, copy=False)) == state):
            kind = "coincide" if state == _POINT else "lie on one line"
            raise ValueError(
                f"{name}: all points {kind}, which does not determine the {what}; use points spread out in 2-D"
            )
        if len(array) <= 64:
            distinct = len(np.unique(np.asarray(array, dtype=np.float64), axis=0))
            if distinct < minimum:
                raise ValueError(f"{name}: only {distinct} distinct points; the {what} needs at least {minimum}")
    return a, b


def keypoint_pixels(x: Any) -> Any:
    """Pixels (N, 2) of a list of OpenCV's KeyPoints; anything else as it is."""
    if isinstance(x, list | tuple) and len(x) and hasattr(x[0], "pt"):
        return np.array([point.pt for point in x], dtype=np.float64)
    return x


def opencv_matches(keypoints1: Any, keypoints2: Any, matches: Any) -> tuple[Array, Array]:
    """Matched pixels x1, x2, (N, 2) each, of OpenCV's lists of KeyPoints and DMatches.

    ``matches`` may also be what ``knnMatch`` returns: the first of each list counts.
    """
    first = [m[0] if isinstance(m, list | tuple) else m for m in matches if not isinstance(m, list | tuple) or len(m)]
    rows = np.array([(m.queryIdx, m.trainIdx) for m in first], dtype=np.int64).reshape(-1, 2)
    a, b = (np.asarray(keypoint_pixels(k), dtype=np.float64).reshape(-1, 2) for k in (keypoints1, keypoints2))
    for points, used, name in ((a, rows[:, 0], "keypoints1"), (b, rows[:, 1], "keypoints2")):
        if len(used) and not (used.min() >= 0 and used.max() < len(points)):
            raise ValueError(f"matches refer to keypoint {used.max()}, but {name} has {len(points)}")
    return a[rows[:, 0]], b[rows[:, 1]]


_SPREAD, _NOT_FINITE, _POINT, _LINE = 0, 1, 2, 3
_LARGEST = 1e70  # larger coordinates count as infinite: their fourth power overflows


@njit(types.int64(types.Array(types.float64, 2, "A", readonly=True)), nogil=True, error_model="numpy")
def _look(x):  # type: ignore[no-untyped-def]
    """Whether points (n, 2), which may be read-only, are spread out, not finite, all equal, or all on a line."""
    n = x.shape[0]
    mx = my = largest = 0.0
    for i in range(n):
        mx += x[i, 0]
        my += x[i, 1]
        largest = max(largest, max(abs(x[i, 0]), abs(x[i, 1])))
    if not (np.isfinite(mx + my) and largest < _LARGEST):
        return _NOT_FINITE
    mx, my = mx / n, my / n
    xx = xy = yy = 0.0
    for i in range(n):
        a, b = x[i, 0] - mx, x[i, 1] - my
        xx += a * a
        xy += a * b
        yy += b * b
    if xx + yy <= 1e-18 * largest * largest * n:
        return _POINT
    # Determinant over trace squared: the squared ratio of the spreads across and along the best line.
    return _LINE if xx * yy - xy * xy <= 1e-18 * (xx + yy) ** 2 else _SPREAD


def check_intrinsics(K: ArrayLike | None, name: str) -> Array:
    """The (3, 3) camera matrix K of the image called ``name``: given so, or as (fx, fy, cx, cy); identity if None."""
    if K is None:
        return np.eye(3)
    try:
        array = np.array(K, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a (3, 3) camera matrix or (fx, fy, cx, cy), got {K!r}") from error
    if array.shape == (4,):
        fx, fy, cx, cy = array
        array = np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])
    if array.shape != (3, 3):
        raise ValueError(f"{name} must be a (3, 3) camera matrix or (fx, fy, cx, cy), got shape {array.shape}")
    # Plain numbers: checking so few of them takes less time than one call of NumPy.
    rows = array.tolist()
    (fx, _, _), (below, fy, _), (left, right, last) = rows
    if not math.isfinite(sum(map(sum, rows))):
        raise ValueError(f"{name} holds values that are not finite: {rows}")
    if last == 0.0 or abs(left) + abs(right) > 1e-12 * abs(last):
        raise ValueError(f"{name}: the last row must be 0 0 1, got {rows[2]}; is the matrix transposed?")
    if last != 1.0:
        array /= last
        fx, fy, below = fx / last, fy / last, below / last
    if abs(below) > 1e-9 * max(abs(fx), abs(fy)):
        raise ValueError(f"{name}: a camera matrix is upper triangular, got {rows}; is it transposed?")
    if not (fx > 0.0 and fy > 0.0):
        raise ValueError(f"{name} is singular or mirrored: focal lengths must be positive, got {fx} and {fy}")
    return array


def refuse_pixels(x: Points, name: str, camera: str, inverse: Array | None) -> None:
    """Raise ValueError if points are no tangents of angles after the inverse of the camera matrix; None: none given."""
    some = np.asarray(x[:: max(1, len(x) // _LOOK_AT)], dtype=np.float64)
    rays = some if inverse is None else some @ inverse[:2, :2].T + inverse[:2, 2]
    typical = float(np.median(np.abs(rays).max(axis=1)))
    if typical > _LARGEST_TANGENT:
        remedy = f"pass {camera}, or transform the points by its inverse"
        if inverse is not None:
            remedy = f"{camera} must have the focal length and the centre of the image, in the units of {name}"
        raise ValueError(
            f"{name} looks like pixels (half of the points have a coordinate above {typical:.4g}), but with"
            f"{'out' if inverse is None else ''} {camera} it must be in calibrated coordinates: {remedy}"
        )


def extent(x: Array) -> float:
    """Largest range of a coordinate of points or matches (n, k), insensitive to a few gross outliers."""
    n, ordered = len(x), np.sort(x.T.copy())  # of contiguous numbers: a tenth of the time of a partition by columns
    whole, most = ordered[:, -1] - ordered[:, 0], ordered[:, n - 1 - n // 20] - ordered[:, n // 20]
    return float(np.where((whole < 3.0 * most) | (most == 0.0), whole, most).max())


def inverse_intrinsics(K: Array) -> Array:
    """The inverse of a checked camera matrix: (s, f, c) of an upper triangle, in closed form."""
    (fx, s, cx), (_, fy, cy), _ = K.tolist()
    return np.array([[1 / fx, -s / (fx * fy), (s * cy - cx * fy) / (fx * fy)], [0, 1 / fy, -cy / fy], [0, 0, 1.0]])


def undistort(x: Points, K: Array, coefficients: ArrayLike) -> Array:
    """Ideal pixels (N, 2) of distorted ones: where a lens without distortion and the same K would show the points.

    Parameters
    ----------
    x : (N, 2) pixels.
    K : (3, 3) camera matrix.
    coefficients : k1, k2, p1, p2[, k3[, k4, k5, k6]], as OpenCV orders them; 1 to 8 numbers, the rest zero.

    Raises
    ------
    ValueError if the distortion cannot be inverted, which happens outside the calibrated field.
    """
    given = np.asarray(coefficients, dtype=np.float64).ravel()
    if not 1 <= len(given) <= 8 or not np.isfinite(given).all():
        raise ValueError(f"distortion must be 1 to 8 finite numbers (k1 k2 p1 p2 k3 k4 k5 k6), got {coefficients!r}")
    k1, k2, p1, p2, k3, k4, k5, k6 = np.concatenate([given, np.zeros(8 - len(given))])
    A = inverse_intrinsics(K)
    u = np.asarray(x, dtype=np.float64) @ A[:2, :2].T + A[:2, 2]
    target = u.copy()
    h = 1e-7
    right, down = np.array([h, 0.0]), np.array([0.0, h])

    def distort(v: Array) -> Array:
        q = (v * v).sum(axis=1, keepdims=True)
        radial = (1.0 + q * (k1 + q * (k2 + q * k3))) / (1.0 + q * (k4 + q * (k5 + q * k6)))
        a, b = v[:, :1], v[:, 1:]
        cross = 2.0 * a * b
        tangential = np.concatenate([p1 * cross + p2 * (q + 2.0 * a * a), p1 * (q + 2.0 * b * b) + p2 * cross], axis=1)
        distorted: Array = v * radial + tangential
        return distorted

    for _ in range(30):  # Newton's method, two unknowns per point, derivatives by differences
        now = distort(u)
        error = now - target
        if np.abs(error).max(initial=0.0) < 1e-13:
            break
        du, dv = (distort(u + right) - now) / h, (distort(u + down) - now) / h
        det = du[:, 0] * dv[:, 1] - du[:, 1] * dv[:, 0]
        u[:, 0] -= (dv[:, 1] * error[:, 0] - dv[:, 0] * error[:, 1]) / det
        u[:, 1] -= (du[:, 0] * error[:, 1] - du[:, 1] * error[:, 0]) / det
    # A polynomial has further solutions on the other side of the centre, or beyond the turning point of the radius.
    du, dv = (distort(u + right) - distort(u)) / h, (distort(u + down) - distort(u)) / h
    proper = (du[:, 0] * dv[:, 1] > du[:, 1] * dv[:, 0]) & ((u * target).sum(axis=1) >= 0.0)
    bad = ~((np.abs(distort(u) - target).max(axis=1) < 1e-9) & proper)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"distortion: point {np.asarray(x)[row].tolist()} (row {row}) cannot be undistorted; check the "
            "coefficients, or remove points outside the calibrated field"
        )
    ideal: Array = u @ K[:2, :2].T + K[:2, 2]
    return ideal


def read_matches(path: str | Path) -> tuple[Array, Array]:
    """Matches from a file: CSV, whitespace-separated text, NPY or NPZ.

    A row holds ``x1 y1 x2 y2`` (more columns are ignored) or, homogeneous, ``x1 y1 1 x2 y2 1``. A header of
    column names is understood, in any order, if it names x1, y1, x2, y2; a first line with nothing but the
    number of rows is skipped. An NPZ file holds ``x1`` and ``x2`` of shape (N, 2), or one array of rows.

    Returns
    -------
    (x1, x2), each (N, 2) float64.
    """
    path = Path(path)
    if path.suffix.lower() in (".npy", ".npz"):
        arrays = {name: _numeric(path, name, array) for name, array in load_arrays(path).items()}
        if "x1" in arrays and "x2" in arrays:
            x1, x2 = arrays["x1"], arrays["x2"]
            if x1.ndim != 2 or x1.shape[1] != 2 or x1.shape != x2.shape:
                raise ValueError(f"{path}: x1 and x2 must both have the shape (N, 2), got {x1.shape} and {x2.shape}")
            return x1, x2
        if len(arrays) != 1:
            raise ValueError(f"{path}: expected arrays x1 and x2, or a single one; found {', '.join(arrays)}")
        return _split(path, next(iter(arrays.values())))
    limit_text(path)
    return _split(path, *_read_table(path))


def read_table(path: str | Path) -> Array:
    """Rows of numbers from a file, CSV, whitespace-separated text or NPY: (n, k)."""
    path = Path(path)
    if path.suffix.lower() in (".npy", ".npz"):
        arrays = load_arrays(path)
        if len(arrays) != 1:
            raise ValueError(f"{path}: expected a single array; found {', '.join(arrays)}")
        return _numeric(path, *next(iter(arrays.items())))
    limit_text(path)
    return _read_table(path)[0]


def limit_text(path: Path) -> None:
    """Raise if a text file has holes, or is too large to be read into memory."""
    limit = as_bytes(None) // _TEXT_TO_MEMORY
    with open_regular(path) as file:
        refuse_holes(file, path)
    if path.stat().st_size > limit:
        raise ValueError(
            f"{path} has {path.stat().st_size / 1e9:.1f} GB of text, but at most {limit / 1e9:.1f} GB are read: "
            "save the matches with numpy.save"
        )


def _numeric(path: Path, name: str, array: NDArray[Any]) -> Array:
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{path}: {name} must hold numbers, got dtype {array.dtype}")
    return np.array(array, dtype=np.float64)


def _read_table(path: Path) -> tuple[Array, list[str]]:
    """Numbers of a text file and the names in its header, if there is one."""
    names: list[str] = []
    rows: list[list[float]] = []
    for number, line in text_lines(path, _LONGEST_LINE):
        text = line.split("#", 1)[0].replace(",", " ").replace(";", " ").split()
        if not text:
            continue
        try:
            values = written_numbers(text)
        except ValueError:
            if rows or names:
                raise ValueError(f"{path}, line {number}: not a row of numbers: {line.strip()[:80]!r}") from None
            names = _names(line)
            continue
        if len(values) == 1 and not rows:
            continue  # the number of rows
        if rows and len(values) != len(rows[0]):
            raise ValueError(f"{path}, line {number}: {len(values)} numbers, but the rows before have {len(rows[0])}")
        rows.append(values)
    if not rows:
        raise ValueError(f"{path}: no rows of numbers found")
    return np.array(rows), names


def _names(header: str) -> list[str]:
    """Words of a header, which may contain blanks if another delimiter is used."""
    text = header.split("#", 1)[0].strip()
    delimiter = next((d for d in (",", ";", "\t") if d in text), None)
    return [word.strip(" \"'").lower() for word in text.split(delimiter)]


def _split(path: Path, table: Array, names: list[str] | None = None) -> tuple[Array, Array]:
    if table.ndim != 2 or table.shape[1] < 4:
        raise ValueError(f"{path}: rows must hold x1 y1 x2 y2, got an array of shape {table.shape}")
    wanted = ["x1", "y1", "x2", "y2"]
    if names and all(name in names for name in wanted):
        if len(names) != table.shape[1]:
            raise ValueError(f"{path}: the header names {len(names)} columns, and the rows have {table.shape[1]}")
        at = [names.index(name) for name in wanted]
    elif table.shape[1] >= 6 and (table[:, 2] == 1.0).all() and (table[:, 5] == 1.0).all():
        at = [0, 1, 3, 4]
    else:
        at = [0, 1, 2, 3]
    return np.ascontiguousarray(table[:, at[:2]]), np.ascontiguousarray(table[:, at[2:]])


def read_intrinsics(path: str | Path) -> tuple[Array, Array]:
    """Camera matrices (K1, K2) from a file; a single matrix is used for both images.

    Text with 9 numbers (a 3 x 3 matrix), 4 (fx fy cx cy), or twice as many; NPY of the shape (3, 3) or (2, 3,
    3); NPZ with ``K``, or ``K1`` and ``K2``.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    open_regular(path).close()
    if path.stat().st_size > _LARGEST_CAMERA:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes; at most {_LARGEST_CAMERA:,} are read as cameras")
    if suffix in (".npy", ".npz"):
        arrays = {n: _numeric(path, n, a) for n, a in load_arrays(path, max_bytes=_LARGEST_CAMERA).items()}
    if suffix == ".npz":
        names = ("K1", "K2") if "K1" in arrays and "K2" in arrays else ("K", "K")
        if names[0] not in arrays:
            raise ValueError(f"{path}: expected K, or K1 and K2; found {', '.join(arrays)}")
        first, second = arrays[names[0]], arrays[names[1]]
    else:
        if suffix == ".npy":
            if "array" not in arrays:
                raise ValueError(f"{path} is an archive of arrays: name it .npz")
            numbers = arrays["array"].ravel()
        else:
            try:
                text = path.read_text(encoding="utf-8-sig").replace(",", " ").replace(";", " ")
                numbers = np.array(written_numbers(text.split()))
            except UnicodeDecodeError:
                raise ValueError(f"{path} is not text; camera matrices are CSV, text, NPY or NPZ files") from None
            except ValueError as error:
                raise ValueError(f"{path}: not a list of numbers ({error})") from None
        shapes = {9: (1, 3, 3), 18: (2, 3, 3), 4: (1, 4), 8: (2, 4)}
        if len(numbers) not in shapes:
            raise ValueError(
                f"{path}: expected 9 numbers (a 3 x 3 camera matrix) or 4 (fx fy cx cy), or twice as many for two "
                f"cameras; found {len(numbers)}"
            )
        both = numbers.reshape(shapes[len(numbers)])
        first, second = both[0], both[-1]
    return check_intrinsics(first, f"{path}: K1"), check_intrinsics(second, f"{path}: K2")
