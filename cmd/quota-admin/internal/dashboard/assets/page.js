// The page: it shows what the server sends. All
// text from the server goes through shown(), and none becomes HTML.
import { openChart, spanOf } from "/chart.js";
import { fill, number, shown, ago, el, text, Rows, plain, clockTime, dateTime, zone, sparkline } from "/draw.js";

const $ = (id) => document.getElementById(id);
let state = null; // the newest
let opened = null; // the provider whose detail is shown
let stream = null; // what ends the stream
let linked = false; // the stream is open
let heard = 0; // when the stream last said anything
let chart = null;
let chosen = false; // somebody chose a provider, or none, or the page did
let historyOf = ""; // what the history is shown of: provider and revision
let changes = []; // of the policy, as events
let dividedBy = localStorage.getItem("by") || "instance"; // what the chart is divided by, if it can be

// ---- the stream

function wanted() {
  const name = /^#\/(.+)$/.exec(location.hash);
  if (!name) return null;
  try { return decodeURIComponent(name[1]); } catch { return null; }
}

// choose opens the only provider where none is chosen, and the first where there
// is room beside the list.
function choose() {
  if (chosen || state.providers.length === 0) return;
  chosen = true;
  if (opened !== null || state.providers.length > 1 && !matchMedia("(min-width: 1000px)").matches) return;
  history.replaceState(null, "", "#/" + encodeURIComponent(state.providers[0].provider));
  follow();
}

function follow() {
  opened = wanted();
  stream?.abort();
  chart?.destroy();
  chart = null;
  historyOf = "";
  changes = [];
  $("detail").hidden = opened === null;
  $("detail").className = "blank"; // until its state is there
  document.body.classList.toggle("split", opened !== null);
  instances.clear();
  $("history").replaceChildren();
  document.title = opened === null ? "Quotient" : shown(opened) + " · Quotient";
  if (opened !== null) {
    $("detail-title").textContent = shown(opened);
    chart = openChart($("chart"), shown);
  }
  stream = new AbortController();
  listen(stream, chart, "/api/events" + (opened === null ? "" : "?provider=" + encodeURIComponent(opened)));
}

// listen reads the stream, a line of JSON for whatever happens, and comes back when
// it ends.
async function listen(mine, drawn, path) {
  try {
    const answer = await fetch(path, { signal: mine.signal });
    if (!answer.ok) throw new Error(answer.statusText);
    linked = true;
    heard = Date.now();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) take(JSON.parse(line), drawn);
    }
  } catch { /* it comes back */ }
  if (mine.signal.aborted) return;
  linked = false;
  badge();
  setTimeout(() => { if (!mine.signal.aborted) listen(mine, drawn, path); }, 1000);
}

function take(message, drawn) {
  heard = Date.now();
  if (message.reset) drawn?.reset();
  for (const p of message.points || []) drawn?.add(p);
  if (message.state) state = message.state;
  soon();
}

let due = false;
// soon draws once before the browser does, however many events came.
function soon() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; draw(); });
}

// ---- drawing

function alarm(message) {
  if ($("alarm").textContent !== message) $("alarm").textContent = message;
  $("alarm").hidden = message === "";
}

function badge() {
  const silent = Date.now() - heard > 8000 && heard > 0;
  let kind = "good", word = "live", message = "";
  if (silent || (stream && !linked)) {
    [kind, word] = ["bad", "no connection"];
    if (silent) message = "The dashboard has not answered since " + clockTime(heard) + ". What is shown is from then.";
  } else if (state && !state.etcd.ok) {
    [kind, word] = ["bad", state.etcd.denied ? "no permission" : "etcd is away"];
    message = (state.etcd.denied ? "This dashboard's user may not read from etcd: give it the role reader. " : "etcd has not answered since " +
      clockTime(state.etcd.since) + ". What is shown is from before. " + (state.detail?.outage ? plain(state.detail.outage) :
      "Instances of rule hold go on with the shares they had; those of rule stop issue nothing once their last proof is too old") + ". ") + shown(state.etcd.error.replace(/^.*desc = |transport: Error while dialing: |"/g, ""));
  }
  $("link").className = "badge " + kind;
  if ($("link").textContent !== word) $("link").textContent = word;
  alarm(message);
}

function draw() {
  if (!state) return;
  choose();
  document.body.classList.add("drawn");
  document.body.classList.toggle("away", !state.etcd.ok);
  badge();
  drawList();
  if (opened !== null) drawDetail();
}

function notes(list, lines) {
  fill(list, lines, () => el("li"), (li, line) => text(li, shown(line)));
}

const modeClass = { enforce: "good", shadow: "warn", pause: "warn", broken: "bad" };
const modeWord = { pause: "paused" };

let onlyFull = []; // the providers that the filter lets through
function drawList() {
  const want = $("filter").value.toLowerCase();
  onlyFull = state.providers.filter((p) => p.provider.toLowerCase().includes(want));
  text($("list-count"), onlyFull.length === state.providers.length ? String(onlyFull.length) : onlyFull.length + " of " + state.providers.length);
  text($("list-age"), state.etcd.ok ? "" : "as of " + ago(state.now - state.etcd.since) + " ago");
  notes($("notes"), state.notes);
  const rows = state.providers.length === 0 ? [] : [null, ...onlyFull];
  fill($("providers"), rows, (p) => p === null ? providerHead() : providerRow(), (row, p) => { if (p !== null) updateProvider(row, p); });
}

const providerColumns = [["Provider", "name"], ["Limits", "limits"], ["Trend", "trend"], ["Issued/s", "number"], ["Refused/s", "number"],
  ["Waiting", "number waiting"], ["Applied", "number"], ["Mode", "mode"]];

function providerHead() {
  const row = el("div", "row head");
  for (const [title, kind] of providerColumns) {
    const cell = el("span", kind);
    cell.textContent = title;
    row.append(cell);
  }
  return row;
}

function providerRow() {
  const row = el("a", "row"), picture = (tag) => document.createElementNS("http://www.w3.org/2000/svg", tag);
  const [name, limits, trend, issued, refused, waiting, applied, mode] = providerColumns.map(([title, kind]) => {
    const cell = el("span", kind);
    if (kind.startsWith("number")) cell.dataset.label = title.toLowerCase();
    row.append(cell);
    return cell;
  });
  const svg = picture("svg"), path = picture("path"), line = picture("path");
  svg.setAttribute("viewBox", "0 0 60 24");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  svg.append(path, line);
  trend.append(svg);
  row.cells = { name, limits, issued, refused, waiting, applied, mode, path, line };
  return row;
}

function updateProvider(row, p) {
  const c = row.cells, href = "#/" + encodeURIComponent(p.provider);
  if (row.getAttribute("href") !== href) row.setAttribute("href", href);
  row.setAttribute("aria-current", String(p.provider === opened));
  text(c.name, shown(p.provider) + (p.troubles ? " ⚠" : ""));
  c.name.title = p.problem ? shown(p.problem) : p.troubles ? p.troubles + " troubles" : "";
  text(c.limits, p.limits || "–");
  sparkline(c.path, c.line, p.trend || [], p.bounds || []);
  text(c.issued, number(p.issued));
  text(c.refused, number(p.refused));
  text(c.waiting, number(p.waiting));
  text(c.applied, p.instances ? p.applied + "/" + p.instances : "–");
  c.applied.className = "number" + (p.applied < p.instances ? " warn" : " usual");
  text(c.mode, modeWord[p.mode] || p.mode);
  c.mode.className = "mode " + (modeClass[p.mode] || "dim") + (p.mode === "enforce" ? " usual" : "");
}

function facts(list, pairs) {
  fill(list, pairs, () => { const d = el("div"); d.append(el("dt"), el("dd")); return d; }, (d, [name, value]) => {
    text(d.firstChild, name);
    text(d.lastChild, value);
  });
}

// rates fills a table of rates; one without rows is not shown.
function rates(id, titles, rows, always) {
  $(id).parentNode.hidden = !always && rows.length === 0;
  fill($(id), [null, ...rows], (cells) => {
    const row = el("div", "row" + (cells === null ? " head" : ""));
    row.setAttribute("role", "row");
    titles.forEach((title, i) => {
      const cell = el("span", i === 0 ? "" : "number");
      cell.setAttribute("role", cells === null ? "columnheader" : "cell");
      if (cells === null) cell.textContent = title;
      row.append(cell);
    });
    return row;
  }, (row, cells) => cells?.forEach((value, i) => text(row.children[i], value)));
}

// sumOf adds a column of the instances up.
function sumOf(d, column) {
  const at = d.columns.indexOf(column);
  return d.instances.reduce((sum, row) => sum + (row[at] || 0), 0);
}

function drawDetail() {
  const d = state.detail;
  if (!d || d.provider !== opened) return;
  const p = d.policy, row = state.providers.find((r) => r.provider === opened);
  const mode = p ? p.mode : d.gone ? "not set" : "no policy";
  $("detail").className = "";
  text($("mode"), modeWord[mode] || mode);
  $("mode").className = "badge " + (modeClass[mode] || "bad");
  facts($("facts"), [["Limits", p ? p.limits.replaceAll(",", ", ") : "–"], ...(p?.keys ? [["Each key", p.keys.limits.replaceAll(",", ", ")]] : []), ["Issued/s", number(row?.issued)], [row?.shadowed ? "Refused but let pass/s" : "Refused/s", number(row?.shadowed || row?.refused)],
    ["Waiting", number(row?.waiting)], ["Applied by", row ? row.applied + " of " + row.instances : "–"], ["Sum of shares", number(d.sum_of_shares)], ["On loan", number(sumOf(d, "borrowed"))]]);
  fill($("budgets"), d.budgets, () => {
    const li = el("li"), bar = el("meter");
    bar.setAttribute("aria-hidden", "true"); // the words say the same
    li.append(bar, el("span"));
    return li;
  }, (li, b) => {
    li.firstChild.max = b.permits;
    li.firstChild.value = b.left;
    const f = b.in_flight; // of which an instance has places in hand
    text(li.lastChild, f ? number(f.under_way) + " of " + shown(b.limit) + " under way, " + number(f.in_hand) + " in hand, " + number(b.left) + " free"
      : number(b.left) + " of " + shown(b.limit) + " left" + (b.end ? " until " + dateTime(b.end) : "") + (b.exhausted ? "; at the present rate it is used up at " + dateTime(b.exhausted) : ""));
    li.className = b.exhausted ? "warn" : "";
  });
  rates("classes", ["Class", "Issued/s", "Refused/s", "Waiting"], (d.classes || []).map((c) => [plain(c.class), number(c.issued), number(c.refused), number(c.waiting)]));
  const busiest = (all) => all.map((r) => [shown(r.name) || "(no label)", number(r.issued), number(r.refused), number(r.instances)]);
  rates("busiest-labels", ["Label", "Issued/s", "Refused/s", "Instances"], busiest(d.labels));
  rates("busiest-keys", ["Key", "Issued/s", "Refused/s", "Instances"], busiest(d.keys), p?.keys);
  const pairs = [];
  if (p) {
    pairs.push(["Revision", String(p.revision)], ["Set by", shown(p.author) + ", " + dateTime(p.time)], ["Reason", shown(p.reason) || "–"]);
    for (const n of p.next || []) pairs.push(["Announced", n.limits + " from " + dateTime(n.from)]);
    for (const name of ["guard", "outage", "pacing", "settle"]) {
      if (p[name] !== "0s" && p[name] !== "off") pairs.push([plain(name), shown(p[name])]);
    }
  }
  facts($("policy"), pairs);
  notes($("troubles"), [...(row && row.problem ? ["The policy cannot be applied: " + row.problem] : []), ...d.troubles]);
  const span = spanOf(d.bucket, chart.age(state.now));
  text($("chart-unit"), "permits/s" + (d.bucket > 1 ? ", by " + d.bucket + " s" : "") + "; paler: a mean of more than 5 s; times in " + zone(state.now));
  const events = [...changes, ...d.events].filter((e) => e.t <= state.now && (e.until || (e.kind === "Outage" || e.kind === "Pause" ? Infinity : e.t)) > state.now - 1000 * span).sort((a, b) => a.t - b.t);
  fill($("events"), events.toReversed(), () => { const li = el("li"); li.append(el("time", "dim"), el("span")); return li; }, (li, e) => {
    text(li.firstChild, clockTime(e.t));
    text(li.lastChild, shown(e.text));
    li.className = e.kind;
  });
  const kinds = ["instance", ...chart.kinds()], kind = kinds.includes(dividedBy) ? dividedBy : "instance";
  $("by-label").hidden = kinds.length === 1;
  fill($("by"), kinds, () => el("option"), (option, name) => { text(option, name); option.selected = name === kind; });
  chart.divide(kind);
  text($("chart-empty"), d.instances.length ? "Waiting for reports: instances send them within five seconds." : "No instance uses this provider.");
  $("chart-empty").hidden = chart.draw(state.now, span, events);
  // An outage silences nobody: afterwards reports come again.
  const reporting = state.etcd.ok && state.now - state.etcd.since > 1000 * d.late;
  instances.update(d, p ? p.revision : 0, reporting ? d.late : Infinity);
  text($("age"), state.etcd.ok || !d.at ? "" : "as of " + ago(state.now - d.at) + " ago");
  const key = opened + " " + (p ? p.revision : 0);
  if (key !== historyOf && state.etcd.ok) {
    historyOf = key;
    loadHistory(opened);
  }
}

// ---- instances: there may be a thousand, so only those in sight are drawn

const instances = new Rows($("instances"), $("instances-count"), $("instance-filter"));

// ---- history

async function loadHistory(provider) {
  let data;
  try {
    const answer = await fetch("/api/history?provider=" + encodeURIComponent(provider));
    if (!answer.ok) throw new Error(answer.statusText);
    data = await answer.json();
  } catch { historyOf = ""; return; }
  if (provider !== opened) return;
  const words = (r) => {
    const also = (r.also || []).map((d) => plain(d.field) + " " + (d.old || "–") + " → " + (d.new || "–"));
    const limits = r.old === r.new ? [] : [(r.old || "nothing") + " → " + (r.new || "deleted")];
    return [...limits, ...also].join("; ") || r.new || "–";
  };
  changes = data.events;
  const head = { revision: "Revision", when: "Time", author: "Author", change: "Change", reason: "Reason" };
  fill($("history"), [null, ...data.records], (r) => {
    const row = el("div", "row" + (r === null ? " head" : ""));
    row.setAttribute("role", "row");
    for (const name of Object.keys(head)) {
      const cell = el("span", name === "change" || name === "reason" ? "full" : "");
      row.append(cell);
      if (r === null) cell.textContent = head[name];
    }
    return row;
  }, (row, r) => {
    if (r === null) return;
    const cells = [String(r.revision), dateTime(r.time), r.author, words(r), r.problem || r.reason || "–"];
    cells.forEach((value, i) => text(row.children[i], shown(value)));
  });
  soon();
}

// ---- what people do

window.addEventListener("hashchange", () => {
  const before = opened;
  chosen = true;
  follow();
  scrollTo(0, 0);
  // On a narrow screen the focus would be out of sight.
  const row = [...$("providers").children].find((r) => r.hash === "#/" + encodeURIComponent(opened ?? before));
  (row?.offsetParent ? row : $("detail-title")).focus({ preventScroll: true });
});
$("filter").addEventListener("input", draw);
$("by").addEventListener("change", () => {
  dividedBy = $("by").value;
  localStorage.setItem("by", dividedBy);
  soon();
});
$("keys-button").addEventListener("click", () => $("keys").showModal());

const themes = ["", "light", "dark"], themeNames = ["As the system", "Light", "Dark"];
function theme(next) {
  const root = document.documentElement;
  let at = themes.indexOf(root.dataset.theme || "");
  if (next) at = (at + 1) % themes.length;
  if (themes[at]) { root.dataset.theme = themes[at]; localStorage.setItem("theme", themes[at]); }
  else { delete root.dataset.theme; localStorage.removeItem("theme"); }
  $("theme").textContent = ["◐", "☀", "☾"][at];
  $("theme").title = "Theme (t): " + themeNames[at];
  $("theme").setAttribute("aria-label", "Theme: " + themeNames[at]);
  chart?.recolour();
  soon();
}
$("theme").addEventListener("click", () => theme(true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { chart?.recolour(); soon(); });

document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
  const typing = e.target instanceof HTMLInputElement;
  if (e.key === "Escape") {
    if (typing) { e.target.value = ""; e.target.dispatchEvent(new Event("input")); e.target.blur(); } else if (opened !== null) location.hash = "#/";
    return;
  }
  if (typing) return;
  const rows = [...$("providers").querySelectorAll("a.row")];
  const at = rows.indexOf(document.activeElement);
  const go = (n) => rows[Math.max(0, Math.min(rows.length - 1, n))]?.focus();
  switch (e.key) {
    case "/": $("filter").focus(); break;
    case "j": go(at + 1); break;
    case "k": go(at < 0 ? 0 : at - 1); break;
    case "t": theme(true); break;
    case "?": $("keys").showModal(); break;
    default: return;
  }
  e.preventDefault();
});

setInterval(badge, 1000);
theme(false);
follow();
