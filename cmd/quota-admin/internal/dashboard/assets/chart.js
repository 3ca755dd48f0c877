// The chart of one provider: what was issued, stacked by instance, against the
// limit. Points come one by one, each with its time; one that is there is never
// added again.

const keep = 300; // as many points as the server keeps

import { clockTime, natural } from "/draw.js";

// own reads what is there and nothing inherited: a name may be "constructor".
const own = (named, name) => named && Object.hasOwn(named, name) ? named[name] : 0;

export function openChart(node, shown) {
  let points = [], times = new Set(), plot = null, names = [], raw = [], dirty = true, wide = 0;

  node.points = () => points; // for tests

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
    const x = points.map((p) => p.t / 1000);
    raw = list.map((l) => points.map((p) => p.total === null ? null : l.key === null ? p.others : own(p.named, l.key)));
    const sums = points.map(() => 0);
    const stacked = raw.map((layer) => layer.map((v, i) => v === null ? null : (sums[i] += v)));
    return [x, ...stacked.reverse(), points.map((p) => p.limit)];
  }

  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const exact = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

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
      width: wide, height: 260, legend: { live: true }, cursor: { y: false }, padding: [null, 26, null, null],
      scales: { x: { time: true }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.08)] } },
      axes: [{ ...axis, values: (_, ticks) => ticks.map((t) => clockTime(t * 1000)), space: 90,
        incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600] },
        { ...axis, size: 56, values: (_, ticks) => ticks.map((t) => compact.format(t)) }],
      series: [{ label: "Time", value: (_, t) => t === null ? "–" : clockTime(t * 1000) }, ...series,
        { label: "limit", paths: uPlot.paths.stepped({ align: 1 }), stroke: colour("--limit"), width: 2, dash: [6, 4], points: { show: false }, value: (_, v) => v === null ? "–" : exact.format(v) }],
    }, data, node);
    names = list.map((l) => l.label);
  }

  return {
    reset() { points = []; times = new Set(); dirty = true; },
    add(p) {
      if (times.has(p.t)) return;
      times.add(p.t);
      points.push(p);
      points.sort((a, b) => a.t - b.t);
      while (points.length > keep) times.delete(points.shift().t);
      dirty = true;
    },
    recolour() { names = []; dirty = true; },
    // draw returns whether there is anything to see.
    draw() {
      const width = Math.max(200, node.clientWidth);
      if (!points.some((p) => p.total !== null)) return false;
      if (!dirty && width === wide) return true;
      const list = layers(), data = rows(list);
      const same = plot && names.length === list.length && list.every((l, i) => l.label === names[i]);
      if (width !== wide) { wide = width; plot?.setSize({ width, height: 260 }); }
      if (same) plot.setData(data); else build(list, data);
      dirty = false;
      return true;
    },
    destroy() { plot?.destroy(); plot = null; },
  };
}
