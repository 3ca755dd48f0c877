"use strict";
// Draws the charts whose data the page holds, each into a div of its section.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent) || [];
  const places = [...document.querySelectorAll(".plot")];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const exact = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const font = "12px system-ui, sans-serif";
  const part = (nines) => +(100 - 100 * 10 ** -nines).toFixed(3) + "%";

  // Marks are lines across the chart, with what happened beside them.
  const marks = (f) => (u) => {
    const c = u.ctx, { left, top, width, height } = u.bbox, scale = devicePixelRatio;
    c.save();
    c.strokeStyle = c.fillStyle = colour("dim");
    c.font = scale * 12 + "px system-ui, sans-serif";
    c.textAlign = "left";
    c.setLineDash([3 * scale, 3 * scale]);
    let free = [];
    for (const m of f.marks || []) {
      const x = u.valToPos(m.at, "x", true);
      if (x < left || x > left + width) continue;
      c.beginPath(); c.moveTo(x, top); c.lineTo(x, top + height); c.stroke();
      const wide = c.measureText(m.text).width + 8 * scale, from = Math.min(x + 4 * scale, left + width - wide);
      let row = free.findIndex((end) => end < from);
      if (row < 0) row = free.length;
      if (row < 4) c.fillText(m.text, from, top + (14 + 15 * row) * scale);
      free[row] = from + wide;
    }
    c.restore();
  };

  function draw(f, node) {
    const stacked = f.lines.map((l) => l.values.slice());
    f.lines.forEach((l, i) => { if (l.stack && i > 0) stacked[i] = l.values.map((v, j) => v + stacked[i - 1][j]); });
    // What is stacked is drawn from the top down, so that each band covers its part.
    const order = f.lines.map((_, i) => i);
    const bands = f.lines.filter((l) => l.stack).length;
    order.splice(0, bands, ...order.slice(0, bands).reverse());
    const series = order.map((i) => {
      const l = f.lines[i], ink = colour(/^\d+$/.test(l.color) ? "r" + Math.round(l.color * 9 / Math.max(1, bands - 1)) : l.color);
      return {
        label: l.name, stroke: ink, width: l.fill || l.color === "grey" ? 1 : 2, points: { show: false },
        fill: l.fill ? ink + (l.stack ? "" : "40") : undefined, spanGaps: false,
        paths: l.curve ? undefined : uPlot.paths.stepped({ align: 1 }),
        value: (u, v, s, at) => at === null || l.values[at] === null ? "–" : exact.format(l.values[at]),
      };
    });
    const top = (_, low, high) => [0, Math.max(1, (f.most ? Math.min(high, f.most) : high) * 1.05)];
    const axis = { stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") }, font, labelFont: font, labelSize: 18 };
    const nines = node.clientWidth < 500 ? [0, 1, 2, 3, 4] : [0, -Math.log10(0.5), 1, 2, 3, 4, 5];
    return new uPlot({
      width: Math.max(260, node.clientWidth), height: node.clientWidth < 500 ? 260 : 320, cursor: { y: false }, padding: [8, 26, null, null],
      scales: {
        x: { time: false },
        y: f.log ? { distr: 3 } : { range: top },
      },
      axes: [
        { ...axis, label: f.x, ...(f.nines ? { splits: (u) => nines.filter((n) => n <= u.scales.x.max), values: (_, at) => at.map(part) } : {}) },
        { ...axis, label: f.y, size: 60, values: (_, at) => at.map((v) => v === null ? "" : compact.format(v)) },
      ],
      series: [{ label: f.x, value: (_, v) => v === null ? "–" : f.nines ? part(v) : exact.format(v) }, ...series],
      hooks: { draw: [marks(f)] },
    }, [f.at, ...order.map((i) => stacked[i])], node);
  }

  let plots = [], wide = 0;
  function all(again) {
    if (!again && document.documentElement.clientWidth === wide) return;
    wide = document.documentElement.clientWidth;
    plots.forEach((p) => p.destroy());
    plots = figures.map((f, i) => draw(f, places[i]));
  }
  all(true);
  addEventListener("resize", () => all(false));
  dark.addEventListener("change", () => all(true));
})();
