// The chart of one provider: what was issued, stacked by instance, against the
// limit, and what happened meanwhile. Points come one by one, each with its time;
// one that is there is never added again.

import { clockTime, natural, tickTime } from "/draw.js";

const keep = 300; // as many points as the server keeps
const height = 280;

// spanOf is how many seconds the chart shows: five minutes, or 60 long points.
export const spanOf = (bucket) => Math.max(300, 60 * bucket);

const eventColours = { Change: "--accent", Joined: "--good", Left: "--dim", Lost: "--bad", Refusals: "--warn" };

// own reads what is there and nothing inherited: a name may be "constructor".
const own = (named, name) => named && Object.hasOwn(named, name) ? named[name] : 0;

export function openChart(node, shown) {
  let points = [], times = new Set(), plot = null, names = [], raw = [], wide = 0, from = 0, until = 0, events = [];

  node.points = () => points; // for tests
  node.marks = []; // drawn, for tests
  node.range = () => plot && [plot.scales.x.min, plot.scales.x.max]; // the same

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Names in the order in which they first stood by themselves keep their colours.
  const order = [];
  function layers() {
    const now = new Set();
    for (const p of points) for (const n of Object.keys(p.named || {})) now.add(n);
    for (let i = order.length - 1; i >= 0; i--) if (!now.has(order[i])) order.splice(i, 1);
    for (const n of [...now].sort(natural)) if (!order.includes(n)) order.push(n);
    const list = order.slice(0, 12).map((n) => ({ key: n, label: shown(n) }));
    if (points.some((p) => p.others > 0)) list.push({ key: null, label: "others" });
    return list;
  }

  // rows returns uPlot's columns: x, the stack from its top down, the limit. raw
  // keeps what each layer adds, for the legend.
  function rows(list) {
    const all = points[0]?.t <= from * 1000 ? points : [{ t: from * 1000, total: null, limit: null }, ...points];
    const x = all.map((p) => p.t / 1000);
    raw = list.map((l) => all.map((p) => p.total === null ? null : l.key === null ? p.others : own(p.named, l.key)));
    const sums = all.map(() => 0);
    const stacked = raw.map((layer) => layer.map((v, i) => v === null ? null : (sums[i] += v)));
    return [x, ...stacked.reverse(), all.map((p) => p.limit)];
  }

  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const exact = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

  // mark draws the events: a line for each, and above it its words where they fit.
  function mark(u) {
    const c = u.ctx, { left, top, width, height } = u.bbox, scale = devicePixelRatio;
    let free = left + width;
    node.marks = [];
    c.save();
    c.lineWidth = scale;
    c.font = 12 * scale + "px system-ui, sans-serif";
    [c.textAlign, c.textBaseline] = ["left", "alphabetic"];
    c.setLineDash([2 * scale, 3 * scale]);
    for (const e of events.toReversed()) {
      const x = u.valToPos(e.t / 1000, "x", true), all = shown(e.text), words = all.length > 40 ? all.slice(0, 39) + "…" : all, wide = c.measureText(words).width;
      if (x < left || x > left + width) continue;
      c.strokeStyle = c.fillStyle = colour(eventColours[e.kind]);
      c.beginPath(); c.moveTo(x, top - 4 * scale); c.lineTo(x, top + height); c.stroke();
      const at = Math.max(left, Math.min(x, free - wide));
      if (at >= x - wide && at + wide <= free) {
        c.fillText(words, at, top - 8 * scale);
        free = at - 12 * scale;
      }
      node.marks.push(e.text);
    }
    c.restore();
  }

  function build(list, data) {
    plot?.destroy();
    const dim = colour("--dim"), line = colour("--line");
    const palette = (l, i) => l.key === null ? colour("--c7") : colour("--c" + (i % 7));
    const series = list.map((l, i) => ({
      label: l.label, stroke: palette(l, i), fill: palette(l, i), width: 1, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false },
      value: (_, __, ___, at) => at === null || raw[i][at] === null ? "–" : exact.format(raw[i][at]),
    })).reverse();
    const axis = { stroke: dim, grid: { stroke: line, width: 1 }, ticks: { stroke: line }, font: "12px system-ui, sans-serif" };
    plot = new uPlot({
      width: wide, height, legend: { live: true }, cursor: { y: false }, padding: [24, 26, null, null], hooks: { draw: [mark] },
      scales: { x: { time: true, range: () => [from, until] }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.08)] } },
      axes: [{ ...axis, values: (_, ticks) => ticks.map((t) => tickTime(t * 1000)), space: 90,
        incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600] },
        { ...axis, size: 56, values: (_, ticks) => ticks.map((t) => compact.format(t)) }],
      series: [{ label: "Time", value: (_, t) => t === null ? "–" : clockTime(t * 1000) }, ...series,
        { label: "limit", paths: uPlot.paths.stepped({ align: 1 }), stroke: colour("--limit"), width: 2, dash: [6, 4], points: { show: false }, value: (_, v) => v === null ? "–" : exact.format(v) }],
    }, data, node);
    names = list.map((l) => l.label);
  }

  return {
    reset() { points = []; times = new Set(); },
    add(p) {
      if (times.has(p.t)) return;
      times.add(p.t);
      points.push(p);
      points.sort((a, b) => a.t - b.t);
      while (points.length > keep) times.delete(points.shift().t);
    },
    recolour() { names = []; },
    // draw shows the time until now, and returns whether anything was issued in it.
    draw(now, span, happened) {
      until = now / 1000;
      from = until - span;
      events = happened;
      const width = Math.max(200, node.clientWidth), list = layers(), data = rows(list);
      const same = plot && names.length === list.length && list.every((l, i) => l.label === names[i]);
      if (width !== wide) { wide = width; plot?.setSize({ width, height }); }
      if (same) plot.setData(data); else build(list, data);
      return points.some((p) => p.total !== null);
    },
    destroy() { plot?.destroy(); plot = null; },
  };
}
