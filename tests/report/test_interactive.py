"""The interactive chart: what is in the page, and what it does in Chromium."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import urllib.request

import numpy as np
import pytest

import problm
from problm.inference.shown import interactive
from problm.report import page
from problm.report.interactive import chart

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)


@pytest.fixture(scope="module")
def fit():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 10, 300)
    y = 3 * np.exp(-0.5 * ((x - 4) / 0.5) ** 2) + 0.2 * x + 0.1 * rng.standard_normal(x.size)
    return problm.fit(problm.models.gaussian() + problm.models.line(), x, y, sigma=0.1)


def test_the_page_runs_one_script_and_loads_nothing(fit):
    text = page.page("a </script> fit", [interactive(fit)])
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'")
    assert re.search(r"script-src 'sha256-[\w+/]{43}='$", policy)
    assert text.count("<script>") == 1
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    content = json.loads(re.search(r'application/json">(.*?)</script>', text)[1])
    assert [s["name"] for s in content["series"]][-4:] == ["1: gaussian", "2: line", "fit", "zero"]


def test_names_cannot_end_the_script():
    x = np.linspace(0, 1, 20)
    from dataclasses import replace

    found = problm.fit("a*x + b", x, x)
    found = replace(found, model=replace(found.model, variables=("</script><b>",), response="<i>&amp;"))
    assert "</script><b>" not in interactive(found)
    assert "<i>" not in interactive(found)


@pytest.mark.parametrize("log", [False, True])
def test_points_at_the_ends_are_not_cut(log):
    x = np.geomspace(0.01, 100.0, 50)
    part = chart(x, x, x - x, x, (x, x, x), log=(log, log))
    low, high = json.loads(re.search(r'application/json">(.*?)</script>', part)[1])["range"]
    assert low < x[0]
    assert high > x[-1]
    assert low > 0.0 or not log


def test_planes_have_no_chart():
    x = np.random.default_rng(0).uniform(0, 1, (2, 50))
    assert interactive(problm.fit("a*x1 + b*x2", x, x[0] + x[1])) == ""


def test_many_points_are_sampled():
    x = np.linspace(0, 1, 20_000)
    part = interactive(problm.fit("a*x + b", x, x + 0.1 * np.sin(99 * x)))
    content = json.loads(re.search(r'application/json">(.*?)</script>', part)[1])
    assert len(content["series"][0]["x"]) == 4000


async def driven(address: str) -> dict[str, object]:
    """Zoom, reset, toggle and hover by the browser's own protocol."""
    from tornado.websocket import websocket_connect

    link = await websocket_connect(address)
    count = 0

    async def call(method, **params):
        nonlocal count
        count += 1
        await link.write_message(json.dumps({"id": count, "method": method, "params": params}))
        while True:
            told = json.loads(await link.read_message())
            if told.get("id") == count:
                assert "error" not in told, told
                return told["result"]

    async def value(expression):
        found = await call("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    async def mouse(kind, x, y, clicks=1):
        await call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=clicks)

    ticks = "[...document.querySelectorAll('.axes text')].map((t) => t.textContent).join(' ')"
    said: dict[str, object] = {}
    for _ in range(100):
        if await value("document.querySelector('div.chart')?.dataset.ready") == "yes":
            break
        await asyncio.sleep(0.1)
    said["ticks"] = await value(ticks)
    box = json.loads(await value("JSON.stringify(document.querySelector('svg').getBoundingClientRect())"))
    at = [box["x"] + share * box["width"] for share in (0.4, 0.6)]
    height = box["y"] + 0.3 * box["height"]
    await mouse("mousePressed", at[0], height)
    await mouse("mouseMoved", at[1], height)
    await mouse("mouseReleased", at[1], height)
    said["zoomed"] = await value(ticks)
    said["hover"] = await value("document.querySelector('.hover').textContent")
    for clicks in (1, 2):
        await mouse("mousePressed", at[0], height, clicks)
        await mouse("mouseReleased", at[0], height, clicks)
    said["reset"] = await value(ticks)
    said["before"] = await value("document.querySelectorAll('svg path').length")
    await value("[...document.querySelectorAll('.legend button')].find((b) => b.textContent === 'data').click()")
    said["after"] = await value("document.querySelectorAll('svg path').length")
    said["loaded"] = await value("performance.getEntriesByType('resource').length")
    link.close()
    return said


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")
def test_zoom_hover_and_toggles_in_chromium(fit, tmp_path):
    pytest.importorskip("tornado")
    (tmp_path / "chart.html").write_text(page.page("fit", [interactive(fit)]))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
               "--remote-allow-origins=*", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1000,800",
               (tmp_path / "chart.html").as_uri()]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as browser:
        try:
            for line in browser.stderr:
                if found := re.search(r"ws://([\d.]+:\d+)/", line):
                    break
            with urllib.request.urlopen(f"http://{found[1]}/json", timeout=30) as answer:
                (address,) = (p["webSocketDebuggerUrl"] for p in json.load(answer) if p["type"] == "page")
            said = asyncio.run(asyncio.wait_for(driven(address), 60))
        finally:
            browser.kill()
    assert said["ticks"] == said["reset"] != said["zoomed"]
    assert re.search(r"x = 5\.\d+: y = \S+, fit = ", said["hover"])
    assert said["after"] == said["before"] - 2
    assert said["loaded"] == 0


def test_log_axes_where_the_data_and_the_fit_ask_for_it():
    from problm.report.plots import log_axes

    x = np.geomspace(1e-3, 1e3, 60)
    y = 5e3 * x**-0.8
    assert log_axes(x, y, 0.05 * y) == (True, True)
    assert log_axes(np.linspace(1, 100, 60), np.linspace(1, 50, 60), np.ones(60)) == (False, False)
    assert log_axes(np.linspace(400, 500, 60), y, y) == (False, False)  # the fit misses the small values
    assert log_axes(np.geomspace(1, 64, 7), np.arange(7.0), np.ones(7)) == (True, False)


def test_pictures_of_sums_and_planes(fit):
    pytest.importorskip("matplotlib")
    upper, lower = fit.plot().axes
    assert [t.get_text() for t in upper.get_legend().get_texts()][1:3] == ["1: gaussian", "2: line"]
    assert lower.get_ylabel() == "residual / sigma"
    x, y = np.meshgrid(np.arange(20.0), np.arange(15.0))
    plane = problm.models.gaussian_2d() + problm.models.constant_background()
    z = plane((x.ravel(), y.ravel()), 5.0, 8.0, 6.0, 2.0, 1.5, 1.0)
    titles = [ax.get_title() for ax in problm.fit(plane, (x.ravel(), y.ravel()), z).plot().axes[:3]]
    assert titles == ["y", "fit", "residual"]
