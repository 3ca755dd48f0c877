// Small tools for drawing: nodes are made once and changed only where their text
// differs, so that a page of many rows costs little.

// shown makes visible whatever does not print: names and reasons were written by
// others, and could turn the text around or hide in it.
export function shown(value) {
  return String(value ?? "").replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
}

export const plain = (field) => {
  const words = shown(field).replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
};

// natural compares as people do: worker-9 before worker-10.
export const natural = new Intl.Collator("en", { numeric: true }).compare;

const hourCycle = "h23";
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle });
const zoned = new Intl.DateTimeFormat(undefined, { timeStyle: "long", hourCycle });
const stamp = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long", hourCycle });

export const tickTime = (ms) => clock.format(ms); // for axes, whose title names the zone
export const clockTime = (ms) => zoned.format(ms);
export const dateTime = (text) => stamp.format(new Date(text));
export const zone = (ms) => zoned.formatToParts(ms).find((p) => p.type === "timeZoneName").value;

const format = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export function number(n) {
  if (n === null || n === undefined) return "–";
  return (Math.abs(n) < 10 ? fine : format).format(n);
}

export function ago(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  return s < 120 ? s + " s" : Math.round(s / 60) + " min";
}

export function el(tag, kind) {
  const e = document.createElement(tag);
  if (kind) e.className = kind;
  return e;
}

export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

// sparkline draws a row's trend in steps, the newest at the right, under the limit of each.
export function sparkline(path, line, trend, bounds) {
  const most = Math.max(1, ...bounds.map((v) => v || 0), ...trend.map((v) => v || 0)) * 1.08, y = (v) => (24 - 24 * v / most).toFixed(1);
  path.setAttribute("d", trend.map((v, i) => v === null ? "" : "M" + (60 - trend.length + i) + " 24V" + y(v) + "h1V24").join(""));
  line.setAttribute("d", bounds.map((v, i) => v === null ? "" : (i > 0 && bounds[i - 1] !== null ? "V" : "M" + (60 - bounds.length + i) + " ") + y(v) + "h1").join(""));
}

// fill makes the children of a node stand for the items, reusing those there are.
// Items that are null get a node of their own kind.
export function fill(node, items, make, update) {
  items.forEach((item, i) => {
    let child = node.children[i];
    if (child && child.isNull !== (item === null)) {
      child.remove();
      child = null;
      if (node.children[i] && node.children[i].isNull === (item === null)) child = node.children[i];
    }
    if (!child) {
      child = make(item);
      child.isNull = item === null;
      node.insertBefore(child, node.children[i] || null);
    }
    update(child, item);
  });
  while (node.children.length > items.length) node.lastElementChild.remove();
}

// fields of the table of instances: title, column, whether a number, what it
// shows, and whether a narrow screen leaves it out.
const fields = [
  { title: "Instance", column: "name", name: true },
  { title: "Share", column: "share", n: true },
  { title: "State", column: "state" },
  { title: "Issued/s", column: "issued_per_second", n: true },
  { title: "Refused/s", column: "refused_per_second", n: true },
  { title: "Waiting", column: "waiting", n: true, wide: true },
  { title: "Loans", column: "borrowed", n: true, wide: true },
  { title: "Revision", column: "policy_revision", n: true },
  { title: "Clock error", column: "clock_error", n: true },
  { title: "Report", column: "heard_seconds", n: true, wide: true },
];

const stateClass = { active: "good", "pays a debt": "warn", stale: "bad", joining: "warn", pausing: "warn", paused: "warn", closed: "dim" };

// Rows is the table of instances. Rows have one height, so that where each stands
// is known without drawing it.
export class Rows {
  constructor(node, count, filter) {
    Object.assign(this, { node, count, filter, all: [], sort: "name", down: false, revision: 0 });
    this.head = el("div", "row head");
    this.head.setAttribute("role", "row");
    for (const f of fields) {
      const cell = el("span", (f.n ? "number" : "") + (f.wide ? " wide" : ""));
      cell.setAttribute("role", "columnheader");
      const button = el("button");
      button.type = "button";
      button.textContent = f.title;
      button.addEventListener("click", () => {
        this.down = this.sort === f.column ? !this.down : !!f.n;
        this.sort = f.column;
        this.draw();
      });
      cell.append(button);
      this.head.append(cell);
    }
    this.before = el("div");
    this.body = el("div");
    this.after = el("div");
    node.append(this.head, this.before, this.body, this.after);
    node.addEventListener("scroll", () => this.place(), { passive: true });
    filter.addEventListener("input", () => this.draw());
    this.narrow = matchMedia("(max-width: 760px)");
    this.narrow.addEventListener("change", () => this.draw());
  }

  clear() {
    this.all = [];
    this.node.scrollTop = 0;
    this.draw();
  }

  // update takes the instances. One whose report is older than late, in seconds, is silent.
  update(detail, revision, late) {
    this.late = late;
    this.at = Object.fromEntries(detail.columns.map((c, i) => [c, i]));
    this.all = detail.instances;
    this.order();
    this.revision = revision;
    this.draw();
  }

  // order ranks the instances by name. Comparing names as people do is slow, and
  // they seldom change.
  order() {
    const id = this.at.incarnation, name = this.at.name;
    if (this.rank?.size === this.all.length && this.all.every((r) => this.rank.has(r[id]))) return;
    const sorted = [...this.all].sort((a, b) => natural(a[name], b[name]) || natural(a[id], b[id]));
    this.rank = new Map(sorted.map((r, i) => [r[id], i]));
  }

  draw() {
    const want = this.filter.value.toLowerCase(), at = this.at || {};
    const list = want === "" ? [...this.all] : this.all.filter((r) => [r[at.name], r[at.incarnation], r[at.host], r[at.state]].some((v) => String(v ?? "").toLowerCase().includes(want)));
    const i = at[this.sort], sign = this.down ? -1 : 1, rank = (r) => this.rank.get(r[at.incarnation]);
    if (this.sort === "name") list.sort((a, b) => sign * (rank(a) - rank(b)));
    else list.sort((a, b) => sign * compare(a[i], b[i]) || rank(a) - rank(b));
    this.list = list;
    text(this.count, list.length === this.all.length ? String(list.length) : list.length + " of " + this.all.length);
    [...this.head.children].forEach((c, k) => c.setAttribute("aria-sort", fields[k].column === this.sort ? (this.down ? "descending" : "ascending") : "none"));
    this.place();
  }

  // place draws the rows in sight, and a few around them.
  place() {
    const height = this.narrow.matches ? 62 : 31, list = this.list || [];
    const sight = Math.ceil(520 / height) + 8;
    const first = Math.max(0, Math.min(Math.floor(this.node.scrollTop / height) - 4, list.length - sight));
    const part = list.slice(first, first + sight);
    this.before.style.height = first * height + "px";
    this.after.style.height = Math.max(0, list.length - first - part.length) * height + "px";
    fill(this.body, part, () => this.make(), (row, r) => this.fillRow(row, r));
  }

  make() {
    const row = el("div", "row");
    row.setAttribute("role", "row");
    for (const f of fields) {
      const cell = el("span");
      if (!f.name) cell.dataset.label = f.title.toLowerCase();
      cell.setAttribute("role", "cell");
      row.append(cell);
    }
    return row;
  }

  fillRow(row, r) {
    const at = this.at, v = (c) => r[at[c]];
    const silent = v("heard_seconds") === null || v("heard_seconds") > this.late;
    row.className = "row" + (silent ? " silent" : "");
    const about = [v("incarnation"), v("host"), v("version")].filter(Boolean).map(shown).join(", ");
    row.title = about + (v("borrowed") ? "\nborrowed " + permits(v("borrowed"), "from", v("borrowed_from")) : "") +
      (v("lent") ? "\nlent " + permits(v("lent"), "to", v("lent_to")) : "") + (v("problem") ? "\n" + shown(v("problem")) : "");
    fields.forEach((f, k) => {
      const cell = row.children[k], value = v(f.column);
      let kind = (f.n ? "number" : "") + (f.wide ? " wide" : "") + (f.name ? "name" : "");
      let words = f.n && typeof value === "number" ? number(value) : shown(value ?? "–");
      if (f.name) words = (shown(value) || shown(v("incarnation"))) + (v("problem") ? " ⚠" : "");
      if (f.column === "borrowed" && value !== null) words = loans(v);
      if (f.column === "state") {
        kind += " " + (stateClass[value] || "dim");
        if (value === null) words = "no report";
        else if (silent) { words = "silent"; kind = "bad"; }
        else if (v("until") !== null) words += ", leaves";
      }
      if (f.column === "policy_revision") {
        words = value === null ? "–" : String(value);
        if (value !== null && value !== this.revision) kind += " warn";
      }
      if (f.column === "clock_error" && value && value !== "unknown") words = "±" + shown(value);
      if (f.column === "heard_seconds" && value !== null) words = ago(value * 1000);
      text(cell, words);
      if (cell.className !== kind) cell.className = kind;
    });
  }
}

// loans shows the larger loan of the last window, to an instance or by it.
const loans = (v) => v("borrowed") >= v("lent") ? (v("borrowed") ? "+" + number(v("borrowed")) + " from " + v("borrowed_from") : "0") : "−" + number(v("lent")) + " to " + v("lent_to");
const permits = (n, how, instances) => number(n) + " permits " + how + " " + instances + (instances === 1 ? " instance" : " instances") + " in the last window";

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return typeof a === "number" && typeof b === "number" ? a - b : natural(a, b);
}
