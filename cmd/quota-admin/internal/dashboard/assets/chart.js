// The chart of one provider: what was issued, stacked by instance, and what was asked for,
// against the limit; below it what was refused, and who waits; and what happened
// meanwhile. Points come one by one, each with its time; one that is there is never added
// again.

import { clockTime, natural, number, tickTime } from "/draw.js";

const keep = 900; // as many points as the server keeps
const height = 280, stripHeight = 104;

// spanOf is how many seconds the chart shows of points that begin so long ago: five minutes,
// or 60 long points, and up to fifteen minutes where there are points.
export const spanOf = (bucket, age) => Math.max(300, 60 * bucket, Math.min(900, Math.ceil(age || 0)));

const eventColours = { Change: "--accent", Joined: "--good", Left: "--dim", Lost: "--bad", Gone: "--warn", Refusals: "--warn", Pause: "--warn", Resumed: "--good", Outage: "--bad", Back: "--good" };
const bandColours = { Outage: "--band-outage", Pause: "--band-pause" };

// own reads what is there and nothing inherited: a name may be "constructor".
const own = (named, name) => named && Object.hasOwn(named, name) ? named[name] : 0;

export function openChart(node, shown) {
  let points = [], times = new Set(), plot = null, strip = null, names = [], raw = [], wide = 0, from = 0, until = 0, events = [], top = 1, asked = [], means = [], by = "instance";

  node.points = () => points; // for tests
  node.marks = node.bands = []; // drawn, for tests
  node.range = () => plot && [plot.scales.x.min, plot.scales.x.max]; // the same

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // partsOf is what a point says of each name, by what the chart is divided by.
  const partsOf = (p) => by === "instance" ? p.named : p.by?.[by];
  const othersOf = (p) => by === "instance" ? p.others : Math.max(0, p.total - Object.values(partsOf(p) || {}).reduce((a, b) => a + b, 0));

  // Names in the order in which they first stood by themselves keep their colours.
  const order = [];
  function layers() {
    const now = new Set();
    for (const p of points) for (const n of Object.keys(partsOf(p) || {})) now.add(n);
    for (let i = order.length - 1; i >= 0; i--) if (!now.has(order[i])) order.splice(i, 1);
    for (const n of [...now].sort(natural)) if (!order.includes(n)) order.push(n);
    const list = order.slice(0, 12).map((n) => ({ key: n, label: shown(n) || "(no label)" }));
    if (points.some((p) => othersOf(p) > .5)) list.push({ key: null, label: "others" });
    return list;
  }

  // rows returns uPlot's columns: x, the stack from its top down, the demand, the limit. raw
  // keeps what each layer adds, for the legend. Demand beyond twice the rest is cut off, so
  // that the rest can be read; its legend has it whole.
  function rows(list) {
    const all = points[0]?.t <= from * 1000 ? points : [{ t: from * 1000, total: null, limit: null, refused: null, waiting: null }, ...points];
    const x = all.map((p) => p.t / 1000);
    raw = list.map((l) => all.map((p) => p.total === null ? null : l.key === null ? othersOf(p) : own(partsOf(p), l.key)));
    const sums = all.map(() => 0);
    const stacked = raw.map((layer) => layer.map((v, i) => v === null ? null : (sums[i] += v)));
    top = Math.max(1, ...all.map((p) => Math.max(p.limit || 0, p.total || 0)));
    asked = all.map((p) => p.total === null ? null : p.total + p.refused);
    top = 1.08 * Math.max(top, Math.min(2 * top, Math.max(...asked)));
    means = all.map((p) => !!p.mean);
    const known = (v, p) => p.total === null ? null : v;
    return [[x, ...stacked.reverse(), asked, all.map((p) => p.limit)], [x, all.map((p) => known(p.refused, p)), all.map((p) => known(p.waiting, p))]];
  }

  // shade draws outages and pauses behind what was issued.
  function shade(u) {
    const c = u.ctx, { left, top, width, height } = u.bbox, bands = [];
    c.save();
    for (const e of events) {
      if (!bandColours[e.kind]) continue;
      const a = Math.max(left, u.valToPos(e.t / 1000, "x", true)), b = Math.min(left + width, u.valToPos(e.until ? e.until / 1000 : until, "x", true));
      if (b <= a) continue;
      c.fillStyle = colour(bandColours[e.kind]);
      c.fillRect(a, top, Math.max(b - a, devicePixelRatio), height);
      bands.push(e.kind);
    }
    c.restore();
    node.bands = bands;
  }

  // fade makes means paler: what was issued second by second is not known there.
  function fade(u) {
    const c = u.ctx, { top, height } = u.bbox, x = u.data[0];
    c.save();
    c.globalAlpha = .45;
    c.fillStyle = colour("--card");
    for (let i = 0; i < x.length; i++) {
      if (!means[i]) continue;
      let j = i;
      while (j + 1 < x.length && means[j + 1]) j++;
      const a = u.valToPos(x[i], "x", true), b = u.valToPos(j + 1 < x.length ? x[j + 1] : x[j], "x", true);
      c.fillRect(a, top, b - a, height);
      i = j;
    }
    c.restore();
  }

  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

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
      if (e.t < from * 1000) continue;
      const x = u.valToPos(e.t / 1000, "x", true), all = shown(e.kind === "Outage" ? e.text.split(":")[0] : e.text), words = all.length > 40 ? all.slice(0, 39) + "…" : all, wide = c.measureText(words).width;
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
    strip?.destroy();
    const dim = colour("--dim"), line = colour("--line");
    const palette = (l, i) => l.key === null ? colour("--c7") : colour("--c" + (i % 7));
    const steps = uPlot.paths.stepped({ align: 1 }), points = { show: false };
    const said = (values) => (_, v, __, at) => { const n = values ? values(at) : v; return n === null || n === undefined ? "–" : number(n); };
    const series = list.map((l, i) => ({
      label: l.label, stroke: palette(l, i), fill: palette(l, i), width: 1, paths: steps, points,
      value: said((at) => at === null ? null : raw[i][at]),
    })).reverse();
    const axis = { stroke: dim, grid: { stroke: line, width: 1 }, ticks: { stroke: line }, font: "12px system-ui, sans-serif" };
    const time = { label: "Time", value: (_, t) => t === null ? "–" : clockTime(t * 1000) }, x = { time: true, range: () => [from, until] };
    const cursor = { y: false, sync: { key: "quotient" } }, ticks = (_, all) => all.map((t) => compact.format(t));
    plot = new uPlot({
      width: wide, height, legend: { live: true }, cursor, padding: [24, 44, null, null], hooks: { drawClear: [shade], drawSeries: [(u, i) => { if (i === list.length) fade(u); }], draw: [mark] },
      scales: { x, y: { range: () => [0, top] } },
      axes: [{ ...axis, values: (_, ticks) => ticks.map((t) => tickTime(t * 1000)), space: 90,
        incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600] }, { ...axis, size: 56, values: ticks }],
      series: [time, ...series,
        { label: "demand", paths: steps, stroke: colour("--text"), width: 1, points, value: said() },
        { label: "limit", paths: steps, stroke: colour("--limit"), width: 2, dash: [6, 4], points, value: said() }],
    }, data[0], node);
    const whole = { range: (_, __, max) => [0, Math.max(1, max * 1.08)] };
    strip = new uPlot({
      width: wide, height: stripHeight, legend: { live: true }, cursor, padding: [6, 0, 8, null], hooks: { drawClear: [shade] },
      scales: { x, refused: whole, waiting: whole },
      axes: [{ ...axis, show: false }, { ...axis, scale: "refused", size: 56, values: ticks, space: 24 },
        { ...axis, scale: "waiting", side: 1, size: 44, values: ticks, space: 24, grid: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6] }],
      series: [{ ...time, label: "" , value: () => "" },
        { label: "refused/s", scale: "refused", paths: steps, stroke: colour("--refused"), fill: colour("--refused"), width: 1, points, value: said() },
        { label: "waiting", scale: "waiting", paths: steps, stroke: colour("--accent"), width: 2, points, value: said() }],
    }, data[1], node);
    names = list.map((l) => l.label);
  }

  // newest has the legend tell the newest second, where nobody points at one.
  function newest() {
    for (const u of [plot, strip]) if (u && !(u.cursor.left >= 0)) u.setLegend({ idx: u.data[0].length - 1 });
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
    // kinds are what the points can be divided by, beside instances.
    kinds: () => ["class", "label", "key"].filter((kind) => points.some((p) => p.by?.[kind])),
    divide(kind) {
      if (kind === by) return;
      by = kind;
      order.length = 0;
      names = [];
    },
    // draw shows the time until now, and returns whether anything was issued in it.
    draw(now, span, happened) {
      until = now / 1000;
      from = until - span;
      events = happened;
      const width = Math.max(200, node.clientWidth), list = layers(), data = rows(list);
      const same = plot && names.length === list.length && list.every((l, i) => l.label === names[i]);
      if (width !== wide) { wide = width; plot?.setSize({ width, height }); strip?.setSize({ width, height: stripHeight }); }
      if (same) { plot.setData(data[0]); strip.setData(data[1]); } else build(list, data);
      queueMicrotask(newest); // after uPlot's own, which empties the legend
      return points.some((p) => p.total !== null);
    },
    // age is how long ago the oldest point was, in seconds.
    age: (now) => points.length ? (now - points[0].t) / 1000 : 0,
    destroy() { plot?.destroy(); strip?.destroy(); plot = strip = null; },
  };
}
