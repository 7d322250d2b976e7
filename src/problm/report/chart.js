"use strict";
// One chart: data, curve, band, terms and residuals over a shared x axis. Zoom, hover, toggle; no library, no network.
(function () {
  const NS = "http://www.w3.org/2000/svg";
  const LEFT = 74, RIGHT = 14;
  const PANELS = [{ top: 12, height: 300 }, { top: 338, height: 110 }];
  const HEIGHT = 492;

  function node(name, attributes, parent) {
    const made = document.createElementNS(NS, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (parent) parent.appendChild(made);
    return made;
  }

  function ticks(low, high, log, most = 6) {
    if (log) {
      const found = [];
      for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
        for (const m of high / low < 50 ? [1, 2, 5] : [1])
          if (m * 10 ** e >= low * 0.999 && m * 10 ** e <= high * 1.001) found.push(m * 10 ** e);
      return found;
    }
    const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const found = [];
    for (let t = Math.ceil(low / step) * step; t <= high + 1e-9 * step && found.length < 20; t += step)
      found.push(Math.abs(t) < 1e-9 * step ? 0 : t);
    return found;
  }

  function short(v) {
    return Math.abs(v) >= 1e5 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(2) : String(+v.toPrecision(6));
  }

  function chart(holder) {
    const data = JSON.parse(holder.querySelector("script").textContent);
    const W = Math.max(340, Math.min(880, holder.clientWidth || 880)); // as wide as the page: letters keep their size
    const svg = node("svg", { viewBox: `0 0 ${W} ${HEIGHT}`, role: "img", "aria-label": data.title }, null);
    const legend = document.createElement("p");
    legend.className = "legend";
    const told = document.createElement("p");
    told.className = "note hover";
    told.textContent = "Drag to zoom, double-click to reset, point at the data for values.";
    holder.append(legend, svg, told);
    const off = new Set();
    const full = data.range.slice();
    let view = full.slice();

    const fx = (v) => (data.logx ? Math.log10(v) : v);
    const toX = (v) => LEFT + ((fx(v) - fx(view[0])) / (fx(view[1]) - fx(view[0]))) * (W - LEFT - RIGHT);
    const fromX = (p) => {
      const s = fx(view[0]) + ((p - LEFT) / (W - LEFT - RIGHT)) * (fx(view[1]) - fx(view[0]));
      return data.logx ? 10 ** s : s;
    };

    function span(panel) {
      let low = Infinity, high = -Infinity;
      for (const s of data.series) {
        if (s.panel !== panel || off.has(s.name)) continue;
        for (const column of [s.y, s.low, s.high])
          if (column)
            for (let i = 0; i < column.length; i++)
              if (s.x[i] >= view[0] && s.x[i] <= view[1] && Number.isFinite(column[i])) {
                if (data.logy && panel === 0 && column[i] <= 0) continue;
                low = Math.min(low, column[i]);
                high = Math.max(high, column[i]);
              }
      }
      if (!(low < high)) return Number.isFinite(low) ? [low - 1, high + 1] : [0, 1];
      if (data.logy && panel === 0) return [low / 1.2, high * 1.2];
      const margin = 0.05 * (high - low);
      return [low - margin, high + margin];
    }

    function draw() {
      svg.replaceChildren();
      PANELS.forEach((panel, k) => {
        const [low, high] = span(k);
        const log = data.logy && k === 0;
        const fy = (v) => (log ? Math.log10(v) : v);
        const toY = (v) => panel.top + panel.height * (1 - (fy(v) - fy(low)) / (fy(high) - fy(low)));
        panel.toY = toY;
        const id = `clip${data.id}-${k}`;
        const clip = node("clipPath", { id }, svg);
        node("rect", { x: LEFT, y: panel.top, width: W - LEFT - RIGHT, height: panel.height }, clip);
        const axes = node("g", { class: "axes" }, svg);
        node("rect", { x: LEFT, y: panel.top, width: W - LEFT - RIGHT, height: panel.height, fill: "none" }, axes);
        for (const t of ticks(low, high, log)) {
          node("line", { x1: LEFT, x2: W - RIGHT, y1: toY(t), y2: toY(t), class: "grid" }, axes);
          node("text", { x: LEFT - 6, y: toY(t) + 4, "text-anchor": "end" }, axes).textContent = short(t);
        }
        for (const t of ticks(view[0], view[1], data.logx, W < 500 ? 4 : 6)) {
          node("line", { x1: toX(t), x2: toX(t), y1: panel.top, y2: panel.top + panel.height, class: "grid" }, axes);
          if (k === 1)
            node("text", { x: toX(t), y: panel.top + panel.height + 16, "text-anchor": "middle" }, axes).textContent =
              short(t);
        }
        const middle = panel.top + panel.height / 2;
        node("text", { x: 14, y: middle, transform: `rotate(-90 14 ${middle})`, "text-anchor": "middle" }, axes)
          .textContent = data.labels[k + 1];
        const inside = node("g", { "clip-path": `url(#${id})` }, svg);
        for (const s of data.series) {
          if (s.panel !== k || off.has(s.name)) continue;
          let d = "";
          if (s.kind === "band") {
            for (let i = 0; i < s.x.length; i++) d += `${i ? "L" : "M"}${toX(s.x[i])},${toY(s.high[i])}`;
            for (let i = s.x.length - 1; i >= 0; i--) d += `L${toX(s.x[i])},${toY(s.low[i])}`;
            node("path", { d: d + "Z", fill: s.color, "fill-opacity": 0.22, stroke: "none" }, inside);
          } else if (s.kind === "points") {
            for (let i = 0; i < s.x.length; i++) {
              const y = toY(s.y[i]);
              if (s.x[i] >= view[0] && s.x[i] <= view[1] && Number.isFinite(y)) d += `M${toX(s.x[i])},${y}h0`;
            }
            const size = s.x.length > 1500 ? 3 : W < 500 ? 4 : 5;
            node("path", { d, stroke: s.color, "stroke-width": size, "stroke-linecap": "round",
              "stroke-opacity": 0.6, fill: "none", class: "points" }, inside);
          } else {
            let pen = false;
            for (let i = 0; i < s.x.length; i++) {
              const y = toY(s.y[i]);
              if (Number.isFinite(y)) d += `${pen ? "L" : "M"}${toX(s.x[i])},${y}`;
              pen = Number.isFinite(y);
            }
            node("path", { d, stroke: s.color, "stroke-width": s.dash ? 1.3 : 2, fill: "none",
              "stroke-dasharray": s.dash || "none" }, inside);
          }
        }
      });
      node("text", { x: (LEFT + W - RIGHT) / 2, y: HEIGHT - 8, "text-anchor": "middle", class: "label" }, svg)
        .textContent = data.labels[0];
    }

    for (const name of [...new Set(data.series.map((s) => s.name))].filter((n) => n !== "zero")) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      const first = data.series.find((s) => s.name === name);
      button.style.borderColor = first.color + (first.kind === "band" ? "55" : "");
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        if (!off.delete(name)) off.add(name);
        button.setAttribute("aria-pressed", String(!off.has(name)));
        draw();
      });
      legend.append(button);
    }

    const place = (event) => {
      const box = svg.getBoundingClientRect();
      return ((event.clientX - box.left) / box.width) * W;
    };
    let from = null;
    svg.addEventListener("pointerdown", (event) => { from = place(event); });
    svg.addEventListener("pointerup", (event) => {
      const to = place(event);
      if (from !== null && Math.abs(to - from) > 8) {
        const ends = [fromX(Math.min(from, to)), fromX(Math.max(from, to))];
        view = [Math.max(full[0], ends[0]), Math.min(full[1], ends[1])];
        draw();
      }
      from = null;
    });
    svg.addEventListener("dblclick", () => { view = full.slice(); draw(); });
    svg.addEventListener("pointermove", (event) => {
      const at = place(event);
      const points = data.series.find((s) => s.kind === "points" && s.panel === 0 && !off.has(s.name));
      const curve = data.series.find((s) => s.kind === "line" && s.name === "fit");
      const near = (s) => {
        let best = 0;
        for (let i = 1; i < s.x.length; i++)
          if (Math.abs(toX(s.x[i]) - at) < Math.abs(toX(s.x[best]) - at)) best = i;
        return best;
      };
      if (!points) return;
      const i = near(points), j = near(curve);
      told.textContent = `${data.labels[0]} = ${short(points.x[i])}: ${data.labels[1]} = ${short(points.y[i])}, ` +
        `fit = ${short(curve.y[j])}`;
    });
    draw();
    holder.dataset.ready = "yes";
  }

  document.querySelectorAll("div.chart").forEach(chart);
})();
