// Reads the gateway's data every second while the page is visible, and draws it.

const PERIOD_MS = 1000, PATIENCE_MS = 8000, STATUSES = 11;
/// The spans that can be shown: the seconds of a point, the name of the span, and its parts on the
/// axis.
const RANGES = [[1, "5 min", 5], [10, "1 h", 4], [300, "24 h", 4]];
let view = fresh(RANGES[0]), told = null, failedSince = null;

function fresh([step, name, parts]) {
  return { step, name, parts, run: null, span: 0, points: [], complete: 0, uptime_ms: 0, bounds: [], families: [], faults: [] };
}

async function read(path) {
  // The page's own address may contain a password; the fetched one may not.
  const answer = await fetch(location.origin + path, { signal: AbortSignal.timeout(PATIENCE_MS), cache: "no-store" });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error || `status ${answer.status}`);
  return told;
}

/// Adds the new points, and replaces the incomplete one.
function extend(view, told) {
  const known = view.points.filter(point => !told.points.some(other => other.number === point.number));
  view.points = [...known, ...told.points].slice(-told.points_max);
  Object.assign(view, { run: told.run, uptime_ms: told.uptime_ms, now_ms: told.now_ms, complete: told.complete, bounds: told.bounds_nanos, families: told.families, faults: told.faults, span: told.step_seconds * told.points_max });
}

/// Forgets everything: the gateway was restarted.
function again() {
  statuses.length = 0;
  view = fresh(RANGES.find(([step]) => step === view.step));
  return poll();
}

async function poll() {
  const wanted = view;
  try {
    const [status, history] = await Promise.all([read("/status.json"), read(`/history.json?step=${wanted.step}&after=${wanted.complete}`)]);
    if (wanted.run && wanted.run !== history.run) return again();
    told = status;
    statuses.push(status);
    if (statuses.length > STATUSES) statuses.shift();
    extend(wanted, history);
    failedSince = null;
    if (wanted === view) draw();
  } catch (error) {
    failedSince = failedSince || Date.now();
    state("bad", "no answer");
    troubles([`No response from the gateway since ${clock(failedSince)}: ${error.message}. The page shows the last data.`], "bad");
  }
}

async function keepPolling() {
  if (document.visibilityState === "visible") await poll();
  setTimeout(keepPolling, PERIOD_MS);
}

function draw() {
  if (!told || !view.span) return;
  header(told);
  tiles(told, view);
  drawCharts();
  poolPanel(told.pool);
  slow(told);
  families(told, view);
  operations(told);
  index(told);
}

function drawCharts() {
  if (!told || !view.span) return;
  const used = view.families.map((name, place) => [name, place]).filter(([, place]) => view.points.some(point => point.commands[place] > 0));
  const perSecond = value => point => 1000 * value(point) / point.span_ms;
  const stack = (used.length ? used : [[view.families[0], 0]]).map(([name, place], number) => [seriesColour(number), perSecond(point => point.commands[place]), name]);
  lines("commands", view, stack, { text: rate, name: "Commands", least: 4, isStack: true });
  key("commands-key", stack.map(([paint, , name]) => [paint, name]));
  heat("latency", view);
  key("latency-key", [["", "few to many commands", "ramp"], [colour("median"), "median", "line"], [colour("tail"), "99th percentile", "line"]]);
  const reads = perSecond(point => point.read_bytes), writes = perSecond(point => point.write_bytes);
  lines("traffic", view, [[colour("accent"), reads], [colour("tail"), writes]], { text: (value, write) => bytes(value, write) + "/s", isBytes: true, name: "Traffic to the pool", least: 1024 });
  key("traffic-key", [[colour("accent"), "read", "line"], [colour("tail"), "written", "line"]]);
  const point = pointAt(view) || view.points[view.points.length - 1];
  if (!point) return;
  const when = pointAt(view) ? clock(view.now_ms - (view.uptime_ms - point.at_ms), view.step < 60) + " · " : "";
  say("commands-read", `${when}${rate(1000 * sum(point.commands) / point.span_ms)}, ${plural(point.clients, "client")}`);
  say("latency-read", when + bucketText(point) + ([0.5, 0.99].map(share => quantile(point.latency, view.bounds, share)).some(Number.isFinite) ? `median ${latency(quantile(point.latency, view.bounds, 0.5))}, p99 ${latency(quantile(point.latency, view.bounds, 0.99))}` : "no commands"));
  say("traffic-read", `${when}${count(Math.round(perSecond(point => point.round_trips)(point)))} round trips/s, ${bytes(reads(point))}/s read, ${bytes(writes(point))}/s written`);
}

/// The text for the bucket under the pointer in the heat map.
function bucketText(point) {
  const place = bucketAt();
  if (place === null || pointAt(view) === null) return "";
  const { bounds } = view, bound = at => latency(bounds[at], round);
  const range = place === 0 ? "up to " + bound(0) : bounds[place] === null ? "over " + bound(place - 1) : `${bound(place - 1)} to ${bound(place)}`;
  return `${range}: ${count(point.latency[place])} of ${count(sum(point.latency))} · `;
}

for (const range of RANGES) {
  const choice = element("label"), button = element("input", undefined, { type: "radio", name: "range" });
  button.checked = range[0] === view.step;
  button.addEventListener("change", () => { view = fresh(range); poll(); });
  choice.append(button, range[1]);
  at("ranges").append(choice);
}

let isQueued = false;
function redraw() {
  if (isQueued) return;
  isQueued = true;
  requestAnimationFrame(() => { isQueued = false; drawCharts(); });
}

for (const id of ["commands", "latency", "traffic"]) follow(id, redraw);
const tip = element("div", undefined, { class: "tip", role: "tooltip" });
tip.hidden = true;
document.body.append(tip);
at("map").addEventListener("pointermove", event => explain(event, told && told.pool, tip));
at("map").addEventListener("pointerleave", () => { tip.hidden = true; });
new ResizeObserver(() => requestAnimationFrame(draw)).observe(at("commands"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") poll(); });
at("open").addEventListener("submit", event => {
  event.preventDefault();
  location.hash = "#tree=" + at("kind").value + typed(at("prefix").value);
});
addEventListener("hashchange", () => open(true));
open(true);
keepPolling();
