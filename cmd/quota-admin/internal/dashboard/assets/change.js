// The dialog that changes a limit, or pauses: nothing is written that was not
// previewed as it stands.
import { el, fill, number, shown, text } from "/draw.js";

const $ = (id) => document.getElementById(id);
const titles = { set: "Change the limit of ", pause: "Pause ", resume: "Resume " };
const verbs = { set: "Change limit", pause: "Pause", resume: "Resume" };
let current = null; // what the dialog is about
let previewed = null; // the request that the preview on show is of

export function openDialog(kind, detail, ask) {
  current = { kind, ask, provider: detail.provider, revision: detail.policy.revision, limits: detail.policy.limits };
  text($("change-title"), titles[kind] + shown(detail.provider));
  $("limits").value = detail.policy.limits;
  $("limits-label").hidden = $("limits-help").hidden = kind !== "set";
  $("reason").value = "";
  text($("change-write"), verbs[kind]);
  $("change-write").className = kind === "pause" ? "danger" : "";
  text($("force-text"), kind === "pause" ? "Stop all permits of " + shown(detail.provider) : "This step is meant");
  forget();
  $("change").showModal();
  (kind === "set" ? $("limits") : $("reason")).select();
}

function request() {
  return {
    provider: current.provider, kind: current.kind, limits: current.kind === "set" ? $("limits").value : "",
    reason: $("reason").value, force: $("force").checked, if_revision: current.revision,
  };
}

// forget takes away a preview that is no longer of what is written above it.
function forget() {
  previewed = null;
  $("change-write").disabled = true;
  $("preview").hidden = true;
  $("force-label").hidden = true;
  $("force").checked = false;
  problem("");
}

function problem(words) {
  text($("change-problem"), shown(words));
  $("change-problem").hidden = words === "";
}

// foresee asks what the new limits would have refused lately; a preview stands without it.
async function foresee(body) {
  if (body.kind === "pause") return "";
  const asked = { provider: body.provider, limits: body.limits || current.limits };
  return current.ask("/api/foresee?" + new URLSearchParams(asked)).then((known) => known.text, () => "");
}

function show(done, foreseen) {
  const box = $("preview");
  box.replaceChildren();
  const line = el("p");
  line.textContent = shown(done.old) + " → " + shown(done.new);
  line.className = "name";
  box.append(line);
  for (const e of done.effects || []) {
    const p = el("p", "dim");
    p.textContent = shown(e);
    box.append(p);
  }
  if (foreseen) {
    const p = el("p");
    p.textContent = shown(foreseen);
    box.append(p);
  }
  const shares = done.shares?.instances || [], first = shares.slice(0, 200);
  if (shares.length > 0) {
    const table = el("div", "rows");
    fill(table, [null, ...first], () => { const r = el("div", "row"); r.append(el("span"), el("span", "number"), el("span", "number")); return r; }, (r, i) => {
      if (i === null) r.className = "row head";
      const cells = i === null ? ["Instance", "Share", "Becomes"] : [shown(i.name || i.incarnation), number(i.old_share), number(i.new_share)];
      cells.forEach((c, k) => text(r.children[k], c));
    });
    box.append(table);
    if (shares.length > first.length) {
      const more = el("p", "dim");
      more.textContent = "and " + (shares.length - first.length) + " more";
      box.append(more);
    }
  }
  box.hidden = false;
}

$("change-form").addEventListener("submit", async (e) => {
  e.preventDefault();
  problem("");
  const body = request();
  try {
    const done = await current.ask("/api/preview", body), foreseen = await foresee(body);
    if (JSON.stringify(body) !== JSON.stringify(request())) return; // typed on meanwhile
    show(done, foreseen);
    previewed = body;
    const confirm = done.refused || current.kind === "pause";
    $("force-label").hidden = !confirm && !body.force;
    problem(done.refused || "");
    $("change-write").disabled = !!confirm && !body.force;
  } catch (err) {
    forget();
    problem(err.message);
  }
});

for (const id of ["limits", "reason"]) $(id).addEventListener("input", forget);
$("force").addEventListener("change", () => {
  if (!previewed) return;
  previewed = request();
  $("change-write").disabled = !$("force").checked;
  $("change-problem").hidden = $("force").checked || $("change-problem").textContent === "";
});
$("change-cancel").addEventListener("click", () => $("change").close());
$("change-write").addEventListener("click", async () => {
  if (!previewed) return;
  $("change-write").disabled = true;
  try {
    await current.ask("/api/change", previewed);
    $("change").close();
  } catch (err) {
    forget();
    problem(err.message);
  }
});
