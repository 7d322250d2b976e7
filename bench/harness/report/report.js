"use strict";
// Draws the report from the JSON in #data. Every string goes into the page as a text node or an attribute.
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const WIDTH = 560, HEIGHT = 340, LEFT = 64, RIGHT = 12, TOP = 12, BOTTOM = 44;

  function element(tag, attributes, ...children) {
    const node = document.createElement(tag);
    return fill(node, attributes, children);
  }
  function shape(tag, attributes, ...children) {
    return fill(document.createElementNS(SVG, tag), attributes, children);
  }
  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    for (const child of children) node.append(child);
    return node;
  }
  // Black is the colour of the page's own ink, so that it is seen in the dark.
  function colour(value) { return value === "#000000" ? "var(--ink)" : value; }
  function number(value) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    const size = Math.abs(value);
    const rounded = Number(value.toPrecision(3));
    if (size >= 1e6 || size < 1e-3) return rounded.toExponential().replace("e+", "e");
    return size >= 1e4 ? rounded.toLocaleString("en-US") : String(rounded);
  }

  // Light and dark: the system's choice until the button is pressed.
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  root.dataset.theme = dark.matches ? "dark" : "light";
  dark.addEventListener("change", (event) => { root.dataset.theme = event.matches ? "dark" : "light"; });
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  });

  function ticks(low, high, log) {
    const found = [];
    if (log) {
      const first = Math.ceil(low - 1e-9), last = Math.floor(high + 1e-9);
      const step = Math.max(1, Math.ceil((last - first + 1) / 7));
      for (let e = first; e <= last; e += step) found.push(e);
      if (found.length >= 3) return found;
      // Less than three decades: 1, 2, 5; on a narrow range the round numbers of a linear axis.
      found.length = 0;
      for (let e = Math.floor(low); e <= high; e++) {
        for (const m of [1, 2, 5]) if (e + Math.log10(m) >= low - 1e-9 && e + Math.log10(m) <= high + 1e-9) found.push(e + Math.log10(m));
      }
      return found.length >= 3 ? found : ticks(Math.pow(10, low), Math.pow(10, high), false).filter((v) => v > 0).map(Math.log10);
    }
    const raw = (high - low) / 5, power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) || 10 * power;
    for (let v = Math.ceil(low / step) * step; v <= high + 1e-9 * step; v += step) found.push(Math.abs(v) < step * 1e-9 ? 0 : v);
    return found;
  }

  function chart(panel) {
    const labels = [...new Set(panel.series.map((s) => s.label))];
    const state = { logX: panel.log_x, logY: panel.log_y, hidden: new Set() };
    const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": panel.title });
    const tip = element("div", { class: "tip", role: "status" });
    const figure = element("figure", { class: "chart" }, element("figcaption", {}, panel.title), svg, tip);
    const DASHES = ["", "8 3", "3 2", "8 3 2 3", "1.5 1.5", "12 4", "5 2 1 2"]; // what lies below another line is still seen
    const places_of = panel.categories || [];
    const crowded = panel.series.length > 3 * labels.length; // many runs of each method
    let drawn = [];

    function usable(v, log) { return v !== null && Number.isFinite(v) && (!log || v > 0); }

    function draw() {
      svg.replaceChildren();
      drawn = [];
      const points = [];
      for (const s of panel.series) {
        if (state.hidden.has(s.label)) continue;
        const kept = [];
        for (let i = 0; i < s.x.length; i++) {
          if (usable(s.x[i], state.logX) && usable(s.y[i], state.logY)) {
            kept.push([state.logX ? Math.log10(s.x[i]) : s.x[i], state.logY ? Math.log10(s.y[i]) : s.y[i], s.x[i], s.y[i]]);
          }
        }
        points.push([s, kept]);
      }
      const xs = points.flatMap(([, p]) => p.map((q) => q[0])), ys = points.flatMap(([, p]) => p.map((q) => q[1]));
      if (!xs.length) {
        svg.append(shape("text", { x: WIDTH / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "nothing to show"));
        return;
      }
      const range = (values) => {
        let low = Infinity, high = -Infinity;
        for (const v of values) { low = Math.min(low, v); high = Math.max(high, v); }
        if (high - low < 1e-12) { low -= 0.5; high += 0.5; }
        return [low, high];
      };
      const bars = panel.series.some((s) => s.bars);
      const [x0, x1] = bars ? [-0.5, places_of.length - 0.5] : range(xs), [y0, y1] = bars && !state.logY ? [0, range(ys)[1]]
        : panel.y_range && !state.logY ? panel.y_range : range(ys);
      const px = (v) => LEFT + ((v - x0) / (x1 - x0)) * (WIDTH - LEFT - RIGHT);
      const py = (v) => HEIGHT - BOTTOM - ((v - y0) / (y1 - y0)) * (HEIGHT - TOP - BOTTOM);
      places_of.forEach((name, i) => svg.append(shape("text", { x: px(i), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle", "font-size": 9 }, name)));
      for (const t of places_of.length ? [] : ticks(x0, x1, state.logX)) {
        svg.append(shape("line", { class: "grid", x1: px(t), x2: px(t), y1: TOP, y2: HEIGHT - BOTTOM }));
        svg.append(shape("text", { x: px(t), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" }, number(state.logX ? Math.pow(10, t) : t)));
      }
      for (const t of ticks(y0, y1, state.logY)) {
        svg.append(shape("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: py(t), y2: py(t) }));
        svg.append(shape("text", { x: LEFT - 6, y: py(t) + 4, "text-anchor": "end" }, number(state.logY ? Math.pow(10, t) : t)));
      }
      svg.append(shape("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }));
      svg.append(shape("line", { class: "axis", x1: LEFT, x2: LEFT, y1: TOP, y2: HEIGHT - BOTTOM }));
      svg.append(shape("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, panel.x_label));
      svg.append(shape("text", { transform: `translate(13 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle" }, panel.y_label));
      for (const [s, kept] of points) {
        const places = kept.map(([a, b, x, y]) => ({ x: px(a), y: py(b), vx: x, vy: y, label: s.label }));
        drawn.push(...places);
        const order = labels.indexOf(s.label);
        if (s.bars) {
          const wide = 0.8 * (px(1) - px(0)) / labels.length;
          for (const p of places) {
            p.x += wide * (order + 0.5 - labels.length / 2);
            svg.append(shape("rect", { class: "series", x: p.x - wide / 2, width: wide, y: p.y, height: Math.max(HEIGHT - BOTTOM - p.y, 0), style: `fill:${colour(s.colour)}`, "data-label": s.label }));
          }
          continue;
        }
        if (s.marker) {
          for (const p of places) svg.append(shape("circle", { class: "series", cx: p.x, cy: p.y, r: 4, style: `fill:${colour(s.colour)}`, "data-label": s.label }));
          continue;
        }
        let path = "";
        places.forEach((p, i) => {
          if (i === 0) path += `M${p.x.toFixed(1)} ${p.y.toFixed(1)}`;
          else if (s.step) path += `H${p.x.toFixed(1)}V${p.y.toFixed(1)}`;
          else path += `L${p.x.toFixed(1)} ${p.y.toFixed(1)}`;
        });
        svg.append(shape("path", { class: "series", d: path, fill: "none", style: `stroke:${colour(s.colour)}`, "stroke-width": crowded ? 1 : Math.max(3.2 - 0.4 * order, 1.4), "stroke-dasharray": crowded ? "" : DASHES[order % DASHES.length], "stroke-opacity": crowded ? 0.45 : 0.85, "data-label": s.label }));
      }
    }

    // The nearest point to the pointer, and its numbers.
    const cross = shape("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM });
    function hover(event) {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * WIDTH, y = ((event.clientY - box.top) / box.height) * HEIGHT;
      let best = null, distance = Infinity;
      for (const p of drawn) {
        const d = (p.x - x) ** 2 + (p.y - y) ** 2;
        if (d < distance) { distance = d; best = p; }
      }
      if (!best || distance > 60 ** 2) { leave(); return; }
      cross.setAttribute("x1", best.x);
      cross.setAttribute("x2", best.x);
      svg.append(cross);
      tip.textContent = `${best.label}: ${number(best.vx)}, ${number(best.vy)}`;
      tip.style.display = "block";
      const place = figure.getBoundingClientRect();
      tip.style.left = `${Math.max(4, Math.min(event.clientX - place.left + 12, place.width - tip.offsetWidth - 4))}px`;
      tip.style.top = `${event.clientY - place.top + 14}px`;
    }
    function leave() { cross.remove(); tip.style.display = "none"; }
    svg.addEventListener("pointermove", hover);
    svg.addEventListener("pointerdown", hover);
    svg.addEventListener("pointerleave", leave);

    const controls = element("div", { class: "controls" });
    for (const [name, key] of [["log x", "logX"], ["log y", "logY"]]) {
      const button = element("button", { type: "button", "aria-pressed": String(state[key]) }, name);
      button.addEventListener("click", () => {
        state[key] = !state[key];
        button.setAttribute("aria-pressed", String(state[key]));
        draw();
      });
      controls.append(button);
    }
    const legend = element("div", { class: "legend" });
    for (const label of labels) {
      const mark = element("i");
      mark.style.background = colour(panel.series.find((s) => s.label === label).colour);
      const button = element("button", { type: "button", "aria-pressed": "true", "data-label": label }, mark, label);
      button.addEventListener("click", () => {
        const hide = !state.hidden.has(label);
        if (hide) state.hidden.add(label); else state.hidden.delete(label);
        button.setAttribute("aria-pressed", String(!hide));
        draw();
      });
      legend.append(button);
    }
    figure.append(controls, legend);
    if (panel.caption) figure.append(element("p", { class: "note" }, panel.caption));
    draw();
    return figure;
  }

  function sortable(table, render) {
    const body = element("tbody");
    const show = render || ((cell) => (typeof cell === "number" || cell === null ? number(cell) : cell));
    // Words to the left, numbers (also "3/10" and what is unknown) to the right.
    const words = table.columns.map((_, k) => table.rows.some((row) => typeof row[k] === "string" && Number.isNaN(parseFloat(row[k]))));
    const side = (k) => (words[k] ? { class: "words" } : {});
    const rows = table.rows.map((row, i) => {
      const line = element("tr", {}, ...row.map((cell, k) => element("td", side(k), show(cell, i, k))));
      return { row, line };
    });
    rows.forEach((r) => body.append(r.line));
    const heads = table.columns.map((name, column) => {
      const button = element("button", { type: "button" }, name);
      const head = element("th", { scope: "col", ...side(column) }, button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const value = (r) => {
          const cell = r.row[column];
          if (cell === null) return null;
          const parsed = typeof cell === "number" ? cell : parseFloat(cell);
          return Number.isNaN(parsed) ? cell : parsed;
        };
        rows.sort((a, b) => {
          const p = value(a), q = value(b);
          if (p === null || q === null) return (p === null) - (q === null); // the unknown always last
          const order = typeof p === "number" && typeof q === "number" ? p - q : String(p).localeCompare(String(q));
          return up ? order : -order;
        });
        rows.forEach((r) => body.append(r.line));
      });
      return head;
    });
    const node = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body);
    const parts = [element("h3", {}, table.title), element("div", { class: "wide" }, node)];
    if (table.note) parts.push(element("p", { class: "note" }, table.note));
    return parts;
  }

  function pictures(group) {
    const box = element("div", { class: "pictures" });
    for (const [caption, image] of group.images) {
      box.append(element("figure", {}, element("figcaption", {}, caption), element("img", { src: `data:image/png;base64,${image}`, alt: `${group.title}: ${caption}`, loading: "lazy" })));
    }
    const parts = [element("h3", {}, group.title)];
    const before = group.images.find(([c]) => c.startsWith("before")), after = group.images.find(([c]) => c.startsWith("after"));
    if (before && after) {
      // One picture that blinks between before and after: the eye sees what moves.
      const image = element("img", { src: `data:image/png;base64,${before[1]}`, alt: `${group.title}: before and after` });
      const caption = element("figcaption", {}, before[0]);
      const button = element("button", { type: "button", class: "flip" }, "before / after");
      let first = true;
      button.addEventListener("click", () => {
        first = !first;
        image.src = `data:image/png;base64,${(first ? before : after)[1]}`;
        caption.textContent = (first ? before : after)[0];
      });
      box.append(element("figure", { class: "blink" }, caption, image, element("div", { class: "controls" }, button)));
    }
    parts.push(box);
    return parts;
  }

  function verdict(text) {
    const kind = text === "agrees" ? "agrees" : text === "disagrees" ? "disagrees" : text === "agrees in part" ? "part" : "";
    return element("span", { class: `verdict ${kind}` }, text);
  }

  const content = document.getElementById("content");
  content.replaceChildren();
  const about = data.about, m = about.machine || {};
  content.append(element("p", { class: "note" },
    `Measured ${about.when || ""} on ${m.processor || "?"}, ${m.cores || "?"} cores, one thread for every method; times are CPU times; ` +
    `scale “${(about.settings || {}).scale || ""}”, seed ${(about.settings || {}).seed}. ` +
    "Costs over all residuals are computed outside the clock. Lines end where a method stopped; tap a legend entry to hide it."));
  const overview = { title: "Overview", columns: ["experiment", "figures", "data", "paper's claim and measurement"], rows: data.summaries.map((s) => [s.title, s.figures, s.data || "", s.verdict]), note: "" };
  content.append(...sortable(overview, (cell, i, k) => (k === 0 ? element("a", { href: `#${data.summaries[i].stem || data.summaries[i].name}` }, cell) : k === 3 ? verdict(cell) : cell)));
  for (const s of data.summaries) {
    const section = element("section", { id: s.stem || s.name },
      element("h2", {}, s.title, " ", element("small", {}, [s.figures, s.data].filter(Boolean).join("; "))),
      element("p", { class: "claim" }, element("b", {}, "The paper: "), s.claim),
      element("p", {}, element("b", {}, "Measured: "), verdict(s.verdict), ". ", s.finding));
    if (s.panels.length) section.append(element("div", { class: "panels" }, ...s.panels.map(chart)));
    for (const p of s.pictures) section.append(...pictures(p));
    for (const t of s.tables) section.append(...sortable(t));
    if (s.failures.length) section.append(element("h3", {}, "Runs that failed"), element("ul", {}, ...s.failures.map((f) => element("li", {}, f))));
    if (s.about) section.append(element("p", { class: "note" }, `Measured ${s.about.when}, commit ${s.about.commit || "unknown"}, scale “${(s.about.settings || {}).scale}”, ${s.about.seconds} s.`));
    content.append(section);
  }
  const versions = Object.entries(about.versions || {}).map(([name, v]) => [name, v]);
  content.append(...sortable({ title: "Versions", columns: ["package", "version"], rows: versions, note: `Code ${about.code || ""}; the run took ${about.seconds || "?"} s.` }));
  document.body.dataset.ready = "true";
})();
