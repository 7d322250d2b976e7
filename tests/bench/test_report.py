"""The report: one page that needs nothing else. In headless Chromium: no errors, curves toggle, tables sort, dark mode.

Chromium is driven by a script appended to the page, which clicks and writes down what it sees; so no driver is needed.
"""

from __future__ import annotations

import base64
import html
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from bench.harness import record
from bench.harness.claims import write_claims
from bench.harness.figures import draw, plain, slug
from bench.harness.report import collected, embedded, page, write_report
from bench.harness.summary import Claim, Panel, Picture, Series, Summary, Table, caption, describe, shown

NASTY = '</script><img src=x onerror="document.title=\'broken\'"> & "quotes" <b>@@DATA@@</b>'
ABOUT = {
    "when": "2020-11-30", "machine": {"processor": "p", "cores": 2}, "versions": {"numpy": "2.0"},
    "settings": {"data": "stand-ins", "scale": "check", "seed": 1}, "code": "abc", "seconds": 1.0,
}  # fmt: skip


def _png() -> str:
    from PIL import Image

    memory = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), 200, dtype=np.uint8)).save(memory, "PNG")
    return base64.b64encode(memory.getvalue()).decode()


@pytest.fixture(scope="module")
def summary() -> Summary:
    x = [0.1, 1.0, 10.0, 100.0]
    panel = Panel(
        "Objective", "time [ms]", "objective",
        [Series("LM", "#000000", x, [100.0, 50.0, 5.0, 1.0]),
         Series("ProBLM", "#d55e00", x, [100.0, 2.0, 1.0, 1.0], step=True)],
        log_x=True, log_y=True,
    )  # fmt: skip
    dots = Panel("Inliers", "pair", "count", [Series("a", "#0072b2", [1.0, 2.0], [3.0, float("nan")], marker=True)])
    empty = Panel("Empty", "x", "y", [])
    table = Table(
        "Numbers",
        ["method", "seconds", "found"],
        [["b", 2.0, "1/2"], ["a", 10.0, "2/2"], ["c", None, "0/2"]],
        "A note.",
    )
    pictures = Picture("Pair", [("before", _png()), ("after (default)", _png())])
    return Summary(
        "test", "A <test>", "Fig. 1", NASTY, "It is so.", "agrees in part",
        panels=[panel, dots, empty], tables=[table], pictures=[pictures], failures=["case, method: " + NASTY],
    )  # fmt: skip


def test_embedded_json_cannot_end_its_element():
    text = embedded({"a": NASTY + "\u2028"})
    assert "<" not in text
    assert ">" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {"a": NASTY + "\u2028"}
    with pytest.raises(ValueError, match="JSON"):
        embedded(float("nan"))


def test_the_page_stands_alone(summary, tmp_path):
    text = page([summary.as_dict()], ABOUT)
    without_data = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.S)
    links = set(re.findall(r"https?://[^\s\"'<>]+", without_data))
    assert links == {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="(?!data:)', without_data)
    assert "default-src 'none'" in text
    assert text.count("@@") == text.count("@@DATA@@") * 2  # only the one in the data, as it came
    assert NASTY not in text
    path = write_report([summary.as_dict()], ABOUT, tmp_path / "deep" / "report.html")
    assert path.read_text(encoding="utf-8") == text
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_numbers_that_json_cannot_hold_become_null(summary):
    assert summary.as_dict()["panels"][1]["series"][0]["y"] == [3.0, None]
    assert shown(float("inf")) == "∞"
    assert shown(None) == "–"
    with pytest.raises(ValueError, match="verdict"):
        Summary("a", "b", "c", "d", "e", "perhaps")


def test_the_text_has_claim_finding_and_tables(summary):
    text = "\n\n".join(describe(summary))
    assert "**Measured (agrees in part):** It is so." in text
    assert "| a | 10 | 2/2 |" in text
    assert "| c | – | 0/2 |" in text


def test_figures_are_files_named_by_their_number(summary, tmp_path):
    pytest.importorskip("matplotlib")
    names = {p.name for p in draw(summary, tmp_path)}
    assert {"test-01-objective.svg", "test-01-objective.png", "test-pair-before.png"} <= names
    assert {p.name for p in tmp_path.iterdir()} == names  # no temporary file is left
    assert slug("Fig. 7, right: α ≤ 1/../x") == "fig-7-right-1-x"


FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars", "--disable-extensions",
)  # fmt: skip

PROBE = """
<pre id="seen"></pre>
<script>
addEventListener("load", () => {
  const seen = {};
  const all = (selector) => [...document.querySelectorAll(selector)];
  seen.ready = document.body.dataset.ready;
  seen.title = document.title;
  seen.charts = all("figure.chart").length;
  const chart = all("figure.chart")[0];
  const lines = () => [...chart.querySelectorAll("path.series")].map((p) => p.dataset.label);
  seen.before = lines();
  const toggle = chart.querySelector('.legend button[data-label="LM"]');
  toggle.click();
  seen.hidden = lines();
  seen.pressed = toggle.getAttribute("aria-pressed");
  toggle.click();
  seen.shown = lines();
  const ticks = () => [...chart.querySelectorAll("svg text")].map((t) => t.textContent).join(" ");
  seen.log = ticks();
  for (const button of chart.querySelectorAll(".controls button")) button.click();
  seen.linear = ticks();
  const svg = chart.querySelector("svg"), box = svg.getBoundingClientRect();
  const at = {clientX: box.left + box.width * 0.98, clientY: box.top + box.height * 0.85};
  svg.dispatchEvent(new PointerEvent("pointermove", at));
  seen.tip = chart.querySelector(".tip").textContent;
  seen.tipShown = chart.querySelector(".tip").style.display;
  const table = all("table").find((t) => t.querySelector("th").textContent === "method");
  const column = (k) => [...table.querySelectorAll("tbody tr")].map((r) => r.children[k].textContent);
  seen.unsorted = column(0);
  const head = (k) => table.querySelectorAll("th button")[k];
  head(1).click(); seen.up = column(0);
  head(1).click(); seen.down = column(0);
  head(0).click(); seen.names = column(0);
  head(2).click(); seen.fractions = column(2);
  seen.sort = [...table.querySelectorAll("th")].map((h) => h.getAttribute("aria-sort"));
  const flip = document.querySelector(".flip"), caption = flip.closest("figure").querySelector("figcaption");
  seen.flip = [caption.textContent]; flip.click(); seen.flip.push(caption.textContent);
  seen.images = all("img").map((i) => i.naturalWidth);
  const light = getComputedStyle(document.body).backgroundColor;
  document.getElementById("theme").click();
  seen.themes = [light, getComputedStyle(document.body).backgroundColor];
  seen.claim = document.querySelector(".claim").textContent;
  seen.injected = all('img[src="x"]').length;
  seen.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  document.getElementById("seen").textContent = JSON.stringify(seen);
});
</script>
"""


@pytest.fixture(scope="module")
def chromium():
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        found = shutil.which(name)
        if found:
            return found
    pytest.skip("no Chromium on this machine (Debian: apt install chromium)")


def browse(chromium, path, tmp_path, *flags):
    return subprocess.run(
        [chromium, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr",
         "--virtual-time-budget=4000", *flags, path.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 420], ids=["desk", "phone"])
def test_the_page_works_in_a_browser(chromium, summary, tmp_path, width):
    path = tmp_path / "report.html"
    path.write_text(page([summary.as_dict()], ABOUT).replace("</body>", PROBE + "</body>"), encoding="utf-8")
    done = browse(chromium, path, tmp_path, f"--window-size={width},900", "--dump-dom")
    assert "CONSOLE" not in done.stderr
    match = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, flags=re.S)
    assert match, done.stderr
    seen = json.loads(html.unescape(match.group(1)))
    assert seen["ready"] == "true"
    assert seen["title"] == "ProBLM: the paper, reproduced"
    assert seen["charts"] == 3
    assert seen["before"] == seen["shown"] == ["LM", "ProBLM"]
    assert seen["hidden"] == ["ProBLM"]
    assert seen["pressed"] == "false"
    assert seen["log"] != seen["linear"]
    assert seen["tipShown"] == "block"
    assert re.fullmatch(r"(LM|ProBLM): 100, 1", seen["tip"])
    assert seen["unsorted"] == ["b", "a", "c"]
    assert seen["up"] == ["b", "a", "c"]  # 2 before 10, what is unknown last
    assert seen["down"] == ["a", "b", "c"]
    assert seen["names"] == ["a", "b", "c"]
    assert seen["fractions"] == ["0/2", "1/2", "2/2"]
    assert seen["sort"] == [None, None, "ascending"]
    assert seen["flip"] == ["before", "after (default)"]
    assert set(seen["images"]) <= {8}
    assert seen["themes"][0] != seen["themes"][1]
    assert seen["claim"] == "The paper: " + NASTY
    assert seen["injected"] == 0
    assert seen["overflow"] <= 0  # nothing sticks out sideways, on a phone neither


@pytest.mark.slow
def test_screenshots_show_curves_in_light_and_dark(chromium, summary, tmp_path):
    from PIL import Image

    shots = {}
    for theme in ("light", "dark"):
        path = tmp_path / f"{theme}.html"
        script = f"<script>document.documentElement.dataset.theme = '{theme}';</script>"
        path.write_text(page([summary.as_dict()], ABOUT).replace("</body>", script + "</body>"), encoding="utf-8")
        picture = tmp_path / f"{theme}.png"
        browse(chromium, path, tmp_path, "--window-size=1000,1100", f"--screenshot={picture}")
        with Image.open(picture) as image:
            shots[theme] = np.asarray(image.convert("RGB"), dtype=int)
    assert shots["light"].shape == shots["dark"].shape == (1100, 1000, 3)
    assert shots["light"].mean() > 200
    assert shots["dark"].mean() < 60
    orange = np.array([0xD5, 0x5E, 0x00])  # the curve of the default, in both
    for shot in shots.values():
        assert (np.abs(shot - orange).max(axis=2) < 60).sum() > 100
        assert len(np.unique(shot.reshape(-1, 3), axis=0)) > 50


def test_running_one_experiment_again_keeps_the_others(summary, tmp_path):
    for stem, verdict in (("essential", "agrees"), ("alignment-real", "disagrees"), ("essential", "disagrees")):
        known = {"when": "now", "commit": "abc", "seconds": 1.0}
        record.write(tmp_path, stem, ["# A"], replace(summary, name=stem, verdict=verdict).as_dict(), known, quiet=True)
    found = collected(tmp_path)
    assert [(s["stem"], s["verdict"]) for s in found] == [("alignment-real", "disagrees"), ("essential", "disagrees")]
    assert '"stem":"essential"' in page(found, ABOUT)


def test_claims_are_joined_over_real_and_made_data(summary, tmp_path):
    known = {"when": "2026-01-01", "commit": "abc", "seconds": 1.0}
    for stem, verdict in (("essential-real", "disagrees"), ("essential", "agrees")):
        claims = [
            Claim("x", "Fig. 2a", "Faster", f"{stem}: 1.5", verdict),
            Claim("y", "Section 1", "Any", "-", "agrees"),
        ]
        record.write(tmp_path, stem, ["# A"], replace(summary, claims=claims).as_dict(), known, quiet=True)
    write_claims(tmp_path)
    lines = [line for line in (tmp_path / "claims.md").read_text().splitlines() if line.startswith("| ")]
    assert lines[1] == "| Section 1 | Any | - | - | **agrees** |"  # sections before figures
    assert lines[2] == "| Fig. 2a | Faster | essential-real: 1.5 | essential: 1.5 | **disagrees**; stand-ins: agrees |"
    with pytest.raises(ValueError, match="verdict"):
        Claim("x", "Fig. 2a", "Faster", "", "perhaps")


def test_bars_and_captions(summary, tmp_path):
    pytest.importorskip("matplotlib")
    bars = [Series(name, "#123456", [0.0, 1.0], [3.0, 4.0], bars=True) for name in ("a", "b")]
    panel = Panel("Fig. 8: inliers", "pair", "matches", bars, categories=["one", "two"])
    found = replace(summary, panels=[panel], claims=[Claim("x", "Fig. 8", "As many inliers", "400", "agrees")])
    caption(found)
    assert panel.caption == "The paper: As many inliers. Found (agrees): 400."
    names = {p.name for p in draw(found, tmp_path, "ransac-real")}
    assert "ransac-real-01-fig-8-inliers.png" in names


def test_ticks_of_log_axes_are_plain_numbers():
    assert [plain(v) for v in (0.001, 0.5, 20, 1e5, 2e7, 1e-5)] == ["0.001", "0.5", "20", "100,000", "2e7", "1e-5"]
