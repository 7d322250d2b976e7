"""Pinned are the versions of all that the Makefile installs, and of nothing else; and their audit."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.helpers.audit import judge

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = {
    canonicalize_name(line.partition("==")[0]): line.partition("==")[2]
    for line in (ROOT / "constraints.txt").read_text().split("\n")
    if line and not line.startswith("#")
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def required(*, tools=True):
    """What pyproject.toml names and `make` installs: all but PyTorch, whose tests skip without it.

    ``tools=False`` leaves out the audit, of whose own dependencies the newest are the best.
    """
    extras = PROJECT["project"]["optional-dependencies"]
    (everything,) = (Requirement(text) for text in extras["all"])
    texts = [*PROJECT["project"]["dependencies"], *(t for name in everything.extras for t in extras[name]), "pip"]
    texts += [
        text for name, group in PROJECT["dependency-groups"].items() if tools or name != "audit" for text in group
    ]
    return [Requirement(text) for text in texts]


def needed_by(name, extras):
    """What an installed package needs, on any of the Pythons; nothing where it is not installed."""
    try:
        texts = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return
    for requirement in map(Requirement, texts):
        places = [{"extra": extra, "python_version": p} for extra in (*extras, "") for p in PYTHONS]
        if requirement.marker is None or any(requirement.marker.evaluate(place) for place in places):
            yield requirement


def reached():
    seen, waiting = set(), [(canonicalize_name(r.name), frozenset(r.extras)) for r in required(tools=False)]
    while waiting:
        item = waiting.pop()
        if item not in seen:
            seen.add(item)
            waiting += [(canonicalize_name(r.name), frozenset(r.extras)) for r in needed_by(*item)]
    return {name for name, _ in seen}


def installed(name):
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


@pytest.mark.parametrize("requirement", sorted(required(), key=str), ids=lambda r: r.name)
def test_what_the_project_names_is_pinned_within_its_limits(requirement):
    pin = PINS[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(pin, prereleases=True)


def test_every_dependency_of_a_dependency_is_pinned():
    assert {name for name in reached() if installed(name)} <= PINS.keys()


def test_no_pin_is_superfluous():
    assert {name for name in PINS.keys() - {"pip-audit"} if installed(name)} <= reached()


def test_pins_are_exact_and_sorted():
    lines = [line for line in (ROOT / "constraints.txt").read_text().split("\n") if line and not line.startswith("#")]
    assert all(version and "*" not in version for version in PINS.values())
    assert len(lines) == len(PINS)
    assert lines == sorted(lines, key=lambda line: line.partition("==")[0].lower())


def test_the_audit_does_not_take_ignorance_for_safety():
    sound = {"name": "numpy", "version": "2.4.6", "vulns": []}
    skipped = {"name": "scipy", "skip_reason": "not found"}
    bad = {"name": "pillow", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
    assert judge({"dependencies": [sound]}) == (0, "1 versions, none with a known vulnerability")
    assert judge({"dependencies": [sound, skipped]}) == (2, "nothing could be learned about 1 of 2 versions: scipy")
    code, told = judge({"dependencies": [bad, skipped]})
    assert code == 1
    assert told.startswith("pillow 1.0: PYSEC-1, mended in 1.1\n")
    assert judge({"dependencies": []})[0] == 2


def test_bounds_exclude_what_the_security_page_says():
    names = {"PyArrow": "pyarrow", "Pillow": "pillow", "Dask and Distributed": "dask", "Zarr": "zarr"}
    table = (ROOT / "SECURITY.md").read_text().partition("## Dependencies")[2]
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in table.splitlines() if line.startswith("| ")]
    bounds = {r.name: str(r.specifier) for r in required()}
    told = {names.get(name, name): version for name, version in rows[1:]}
    assert {*names.values(), "opencv-python-headless", "h5py", "openpyxl", "astropy"} == told.keys()
    assert {name: bounds[name] for name in told} == {name: f">={version}" for name, version in told.items()}


def test_the_conda_recipe_is_that_of_the_project():
    """Its version, dependencies and lower bounds are those of pyproject.toml."""
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    extras = PROJECT["project"]["optional-dependencies"]
    assert recipe["context"]["version"] == metadata.version("problm")
    assert recipe["package"]["name"] == PROJECT["project"]["name"]
    needed = [Requirement(text) for text in [*PROJECT["project"]["dependencies"], *extras["cli"]]]
    run = [Requirement(text) for text in recipe["requirements"]["run"]]
    assert run == [Requirement(f"python{PROJECT['project']['requires-python']}"), *needed]
    theirs = {"matplotlib": "matplotlib-base", "astropy": "astropy-base", "opencv-python-headless": None}
    optional = [Requirement(text) for name in ("plot", "big", "files") for text in extras[name]]
    wanted = [f"{theirs.get(r.name, r.name)} {r.specifier}" for r in optional]
    assert recipe["requirements"]["run_constraints"] == wanted
    (command,) = (line for line in recipe["build"]["script"] if "jit" in line)
    assert command.partition('"')[2] in (ROOT / "Makefile").read_text()
