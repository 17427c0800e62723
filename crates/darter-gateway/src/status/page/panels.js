// The parts of the page other than charts: current values, the pool's map, tables, slow commands.

const FAULT_NAMES = { client: "bad request", full: "out of space", pool: "pool failure" };
const RECENT_MS = 5000;
/// The last responses of /status.json, the newest last.
const statuses = [];

function sum(values) { return values.reduce((all, value) => all + value, 0); }

function added(lists) { return lists.reduce((all, list) => list.map((value, place) => value + (all[place] || 0)), []); }

/// The activity of the last seconds: sums over the newest points.
function recent(view) {
  const points = [];
  for (let place = view.points.length - 1; place >= 0; place -= 1) {
    if (sum(points.map(point => point.span_ms)) >= RECENT_MS) break;
    points.push(view.points[place]);
  }
  return { seconds: sum(points.map(point => point.span_ms)) / 1000, commands: added(points.map(point => point.commands)), latency: added(points.map(point => point.latency)) };
}

function header(now) {
  const { gateway } = now;
  say("about", `${gateway.pool || "pool without a name"} · up ${duration(gateway.uptime_ms / 1000)} · ${plural(gateway.threads, "thread")} · process ${gateway.process}`);
  say("version", `darter ${gateway.version}`);
  if (gateway.is_shut_out) state("bad", "shut out of the pool");
  else if (gateway.is_stopping) state("warn", "stopping");
  else if (now.troubles.length) state("warn", "serving, with trouble");
  else state("good", "serving");
  troubles(now.troubles);
  notes(now.notes);
}

function state(kind, text) {
  at("state").className = "state " + kind;
  say("state", text);
}

function troubles(texts, kind = "") { at("troubles").replaceChildren(...texts.map(text => element("p", text, { class: kind }))); }

function notes(texts) {
  if (at("notes").textContent !== texts.join("")) at("notes").replaceChildren(...texts.map(text => element("p", text)));
}

function tile(name, value, about, kind = "", share = null) {
  const made = element("div", undefined, { class: "tile " + kind });
  made.append(element("span", name), element("b", value), element("span", about));
  if (share !== null) {
    const bar = element("div", undefined, { class: "bar" }), filled = element("i");
    filled.style.width = Math.min(100, 100 * share) + "%";
    bar.append(filled);
    made.append(bar);
  }
  return made;
}

function slowText(view) {
  const many = sum(view.points.map(point => point.slow));
  return many ? `${plural(many, "slow command")} in ${view.name}` : `nothing slow in ${view.name}`;
}

function tiles(now, view) {
  const { gateway, pool } = now, lately = recent(view);
  const faults = added(view.points.map(point => point.errors)), all = sum(faults);
  const isSerious = view.faults.some((fault, place) => fault !== "client" && faults[place] > 0);
  const causes = view.faults.map((fault, place) => faults[place] ? plural(faults[place], FAULT_NAMES[fault] || fault) : "").filter(Boolean).map(text => text.replace("out of spaces", "out of space"));
  const total = sum(Object.values(now.commands));
  at("tiles").replaceChildren(
    tile("Commands", rate(sum(lately.commands) / lately.seconds), `${count(total)} since the start`),
    tile("Median latency", latency(quantile(lately.latency, view.bounds, 0.5)), "of the last 5 s"),
    tile("99th percentile", latency(quantile(lately.latency, view.bounds, 0.99)), slowText(view)),
    tile("Errors", count(all), all ? causes.join(", ") : `none in ${view.name}`, isSerious ? "bad" : ""),
    tile("Clients", count(gateway.connections), gateway.refused + gateway.dropped ? `${count(gateway.refused)} refused, ${count(gateway.dropped)} dropped` : `of ${count(gateway.connections_max)} at most`),
    pool ? tile("Pool in use", bytes(pool.used_bytes), `of ${bytes(pool.bytes, round)}`, "", pool.used_bytes / pool.bytes) : tile("Pool in use", NONE, "not read yet"),
  );
}

// The map of the pool.

const STATES = { free: "free", closed: "closed, for the next owner", dead: "left by dead members, to be swept", sweeping: "being swept", damaged: "damaged" };
/// Pixels of a cell including its gap, and of a map's height.
const CELL = { largest: 20, smallest: 4, tall: 144 };

function holderColour(holder) { return typeof holder === "number" ? seriesColour(holder) : colour(holder); }

function memberName(pool, slot) {
  const member = pool.members.find(member => member.slot === slot);
  return member ? `member ${slot}, ${member.is_me ? "this gateway" : "process " + member.pid}` : `member ${slot}`;
}

function holderName(pool, holder) { return typeof holder === "number" ? memberName(pool, holder) : STATES[holder]; }

function map(pool) {
  const boxes = at("map");
  while (boxes.children.length > pool.nodes.length) boxes.lastChild.remove();
  pool.nodes.forEach((node, place) => {
    let box = boxes.children[place];
    if (!box) {
      box = element("div", undefined, { class: "node" });
      box.append(element("p"), element("div"));
      boxes.append(box);
    }
    const title = `Node ${node.node}${node.address ? " · " + node.address : ""}`;
    const each = node.map.cell_blocks > 1 ? `, a square is ${count(node.map.cell_blocks)} blocks` : "";
    box.firstChild.replaceChildren(title, element("span", `${bytes(node.bytes, round)}, ${count(node.free)} of ${count(node.blocks)} blocks free${each}`));
    cells(box.lastChild, node);
  });
  const holders = [...new Set(pool.nodes.flatMap(node => node.map.runs.map(([holder]) => holder)))];
  holders.sort((a, b) => (typeof a === "number") - (typeof b === "number") ? typeof a === "number" ? -1 : 1 : a > b ? 1 : -1);
  key("map-key", holders.map(holder => [holderColour(holder), holderName(pool, holder)]));
}

/// Draws the blocks of a node; blocks of inner nodes are paler than blocks of leaves.
function cells(box, node) {
  const many = sum(node.map.runs.map(([, , blocks]) => blocks)), width = box.clientWidth;
  const acrossAt = size => Math.max(1, Math.floor(width / size)), rowsAt = size => Math.max(1, Math.ceil(many / acrossAt(size)));
  let size = CELL.largest;
  while (size > CELL.smallest && (rowsAt(size) > 1 && size > 14 || rowsAt(size) * size > CELL.tall)) size -= 1;
  // Rows of equal length, with the largest cells that fit.
  const across = Math.max(1, Math.ceil(many / rowsAt(size)));
  if (rowsAt(size) > 1) size = Math.min(CELL.largest, Math.max(size, Math.floor(width / across)));
  const { pen, canvas } = canvasOf(box, Math.max(1, Math.ceil(many / across)) * size);
  const gap = size > 8 ? 2 : 1;
  let place = 0;
  for (const [holder, kind, blocks] of node.map.runs) {
    pen.fillStyle = holderColour(holder);
    pen.globalAlpha = kind === "inner nodes" ? 0.55 : 1;
    for (let left = blocks; left > 0; left -= 1, place += 1) {
      pen.beginPath();
      pen.roundRect(place % across * size, Math.floor(place / across) * size, size - gap, size - gap, size > 8 ? 4 : 1);
      pen.fill();
    }
  }
  pen.globalAlpha = 1;
  canvas.setAttribute("aria-label", `Blocks of node ${node.node}: ${node.free} of ${node.blocks} free`);
  Object.assign(box, { cellAt: (x, y) => Math.floor(y / size) * across + Math.min(across - 1, Math.floor(x / size)) });
}

/// Shows the contents of a cell of the map next to the pointer.
function explain(event, pool, tip) {
  const box = event.target.closest(".node > div"), place = [...at("map").children].findIndex(node => node.lastChild === box);
  const node = pool && pool.nodes[place];
  tip.hidden = true;
  if (!node || !box.cellAt) return;
  const edge = box.getBoundingClientRect(), cell = box.cellAt(event.clientX - edge.left, event.clientY - edge.top);
  let before = 0;
  for (const [holder, kind, blocks] of node.map.runs) {
    if (cell < before + blocks) {
      const first = cell * node.map.cell_blocks, last = Math.min(node.blocks, first + node.map.cell_blocks) - 1;
      tip.textContent = `${first === last ? "Block " + first : `Blocks ${first} to ${last}, mostly`}: ${kind ? kind + ", " : ""}${holderName(pool, holder)}`;
      tip.hidden = false;
      tip.style.left = Math.max(4, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8)) + "px";
      tip.style.top = event.clientY + 16 + "px";
      return;
    }
    before += blocks;
  }
}

function poolPanel(pool) {
  if (!pool) return say("pool-read", "not read yet");
  say("pool-read", `${bytes(pool.used_bytes)} of ${bytes(pool.bytes, round)} in use · blocks of ${bytes(pool.block_bytes, round)} · epoch ${grouped(pool.epoch)}`);
  map(pool);
  const held = slot => sum(pool.nodes.flatMap(node => node.map.runs.map(([holder, , cells]) => holder === slot ? cells * node.map.cell_blocks : 0)));
  const isExact = pool.nodes.every(node => node.map.cell_blocks === 1);
  table("members", ["member", "process", "blocks", "*epoch", "*nodes reached", "lease left"], pool.members.map(member => {
    const name = element("td"), swatch = element("span", undefined, { class: "swatch" });
    swatch.style.background = seriesColour(member.slot);
    name.append(swatch, member.slot + (member.is_me ? ", this gateway" : ""));
    const lease = member.lease_left_ms > 0 ? grouped(member.lease_left_ms / 1000, 1) + SPACE + "s" : "run out";
    return [name, member.pid, (isExact ? "" : "≈ ") + count(held(member.slot)), grouped(member.epoch), member.nodes, lease];
  }));
}

// Tables.

function newer(list, before) { return list.map(([, many], place) => many - (before && before[place] ? before[place][1] : 0)); }

function families(now, view) {
  const before = statuses.length > 1 ? statuses[0] : null;
  const seconds = before ? (now.gateway.uptime_ms - before.gateway.uptime_ms) / 1000 : now.gateway.uptime_ms / 1000;
  say("families-about", before ? `the last ${duration(seconds)}` : "since the start");
  if (!now.families.length) return at("families").replaceChildren(element("caption", "No commands so far.", { class: "empty" }));
  return table("families", ["family", "commands", "now", "median", "*p99"], now.families.map(family => {
    const old = before && before.families.find(old => old.name === family.name);
    const buckets = newer(family.buckets, old && old.buckets), of = share => latency(quantile(buckets, view.bounds, share));
    return [family.name, count(family.commands), rate(sum(buckets) / seconds), of(0.5), of(0.99)];
  }));
}

function operations(now) {
  const before = statuses.length > 1 ? statuses[0] : null;
  table("fabric", ["kind", "operations", "round trips", "*verbs", "read", "*written", "*retries"], now.fabric.map(kind => {
    const old = before && before.fabric.find(old => old.kind === kind.kind);
    // Over the newest operations, or over all operations if there are no new ones.
    const from = old && kind.ops > old.ops ? old : {};
    const each = name => (kind[name] - (from[name] || 0)) / Math.max(1, kind.ops - (from.ops || 0));
    return [kind.kind, count(kind.ops), grouped(each("round_trips"), 2), grouped(each("verbs"), 1), bytes(each("read_bytes")), bytes(each("write_bytes")), round(each("retries"))];
  }));
}

function index(now) {
  const { index, est } = now;
  const counting = now.counting_nodes ? `, counting again: ${plural(now.counting_nodes, "node")}` : "";
  say("index-age", index ? `${plural(index.keys, "key")} ${duration(index.age_ms / 1000)} ago${counting}` : `counting: ${plural(now.counting_nodes, "node")}`);
  if (index) {
    const rows = index.nodes.filter(node => node.count > 0).map(node => [node.type, count(node.count), bytes(node.bytes), digits3(node.children / node.count)]);
    table("nodes", ["nodes", "count", "memory", "children"], [...rows, ["leaves", count(index.keys), bytes(index.kv_bytes), ""]]);
  }
  const entries = [];
  if (index) entries.push(["deepest leaf below", plural(index.depth_max, "inner node")]);
  if (index && index.est) entries.push(["express skip table", `${count(index.est.entries)} entries in ${bytes(index.est.bytes)}`]);
  // An index without a skip table has no prefix lengths.
  if (est.prefix_list.length) {
    entries.push(["searches shortened by it", est.sampled_searches ? percent(est.express_searches / est.sampled_searches) : "none sampled yet", "hits"]);
    entries.push(["lengths of its prefixes", est.prefix_list.join(", "), "prefix-list"]);
  }
  entries.push(["cached by this gateway", bytes(now.cache_bytes)]);
  at("est").replaceChildren(...entries.flatMap(([name, text, id]) => [element("dt", name), element("dd", text, id ? { id } : {})]));
}

/// Arguments shown of a slow command, its name included.
const ARGUMENTS = 12;

/// The beginning of an argument that is not a key; the pointer shows the whole argument.
function shortened(text) { return text.length > 40 ? element("span", text.slice(0, 36) + "…", { title: text, class: "soft" }) : text; }

function slow(now) {
  const { slow, gateway } = now;
  say("slow-about", `${count(slow.count)} took ${latency(slow.threshold_us * 1000, round)} or longer`);
  if (!slow.last.length) return at("slow").replaceChildren(element("div", "None so far.", { class: "empty" }));
  const before = at("slow").dataset.last, last = String(slow.last[0].id) + gateway.process;
  if (before === last) return undefined;   // nothing is new: links keep their focus
  at("slow").dataset.last = last;
  at("slow").replaceChildren(...slow.last.map(entry => {
    const line = element("p"), command = element("span");
    for (const argument of entry.arguments.slice(0, ARGUMENTS)) {
      if (command.firstChild) command.append(" ");
      command.append(argument.prefix ? link(argument.prefix, argument.text, "Show this key") : shortened(argument.text));
    }
    if (entry.arguments_all > ARGUMENTS) command.append(element("span", ` … ${count(entry.arguments_all - ARGUMENTS)} more`, { class: "soft" }));
    const when = Date.now() - entry.time * 1000 > 72e6 ? new Date(entry.time * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" }) : clock(entry.time * 1000);
    line.append(element("span", when, { class: "soft" }), element("span", latency(entry.micros * 1000), { class: "number" }), command);
    line.append(element("span", entry.client_name || entry.client, { class: "soft number", title: entry.client }));
    return line;
  }));
}
