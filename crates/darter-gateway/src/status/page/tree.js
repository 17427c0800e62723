// The tree, from its root down to the record of a key. Prefixes are hexadecimal digits here, as in
// the page's address: #tree=ff6b. Records of gateways are below ff; a key of a program that begins
// with fe or ff is below fe.

const FAMILY_NAMES = { 98: "copies in progress", 99: "cursors of SCAN", 102: "fields of hashes", 107: "Redis keys", 109: "members of sorted sets", 115: "scores of sorted sets", 116: "transactions" };

function bytesOf(digits) { return (digits.match(/../g) || []).map(pair => parseInt(pair, 16)); }

function hex(list) { return list.map(byte => byte.toString(16).padStart(2, "0")).join(""); }

function readable(digits) {
  return bytesOf(digits).map(byte => byte === 92 ? "\\\\" : byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "\\x" + byte.toString(16).padStart(2, "0")).join("");
}

/// The bytes of typed text: UTF-8, any byte as \x00.
function typed(text) {
  const list = [], encoder = new TextEncoder();
  for (const part of text.match(/\\x[0-9a-fA-F]{2}|\\\\|[^]/gu) || []) {
    if (part.length === 4 && part.startsWith("\\x")) list.push(parseInt(part.slice(2), 16));
    else list.push(...encoder.encode(part === "\\\\" ? "\\" : part));
  }
  return hex(list);
}

/// The records below a prefix near the root of the tree.
function recordsBelow(digits) {
  if (digits === "ff") return "records of gateways";
  return digits.startsWith("ff") ? FAMILY_NAMES[parseInt(digits.slice(2, 4), 16)] : undefined;
}

function link(digits, text, title) { return element("a", text, title ? { href: "#tree=" + digits, title } : { href: "#tree=" + digits }); }

function path(asked) {
  const parts = [link("", "root")];
  for (let length = 2; length <= Math.min(asked.length, 512); length += 2) {
    const byte = readable(asked.slice(length - 2, length));
    parts.push(link(asked.slice(0, length), byte === " " ? "␣" : byte, readable(asked.slice(0, length))));
  }
  at("path").replaceChildren(...parts);
}

function shownRecord(told) {
  at("record").replaceChildren();
  const record = told.record;
  if (!record) return;
  const list = element("dl", undefined, { class: "leaf code", id: "leaf" });
  const add = (name, text) => list.append(element("dt", name), element("dd", text));
  if (record.type) {
    add("Redis key", readable(told.asked.slice(4)));
    add("type", record.type + (record.expires_ms ? `, until ${new Date(record.expires_ms).toLocaleString("en-GB")}` : ""));
  } else {
    add("key", readable(told.asked.replace(/^fe/, "")));
  }
  add("record", bytes(record.value_bytes));
  add(2 * record.value_bytes > record.value.length ? "begins" : "holds", readable(record.value));
  at("record").append(list);
}

function row(edge, name, cells) {
  const line = element("p"), shown = element("span");
  shown.append(name);
  line.append(element("span", edge, { class: "soft" }), shown, element("span", cells[0], { class: "soft" }));
  line.append(...cells.slice(1).map(text => element("span", text, { class: "soft number spare" })));
  return line;
}

function children(node, asked) {
  const rows = node.children.map(child => {
    const edge = child.edge === null ? "end" : readable(hex([child.edge]));
    const isWhole = child.prefix.length === 2 * child.prefix_bytes;
    const text = readable(isWhole ? child.prefix : child.prefix.slice(0, 128)) + (isWhole ? "" : "…");
    const name = element("span");
    // A prefix that is too long for a request can only be shown here.
    name.append(isWhole ? link(child.prefix, text) : text);
    const below = asked.length < 4 ? recordsBelow(child.prefix) : undefined;
    if (below) name.append(element("span", "  " + below, { class: "soft" }));
    return row(edge, name, [child.label, child.value_bytes === null ? "" : bytes(child.value_bytes), child.addr]);
  });
  const about = `${plural(node.children.length, "child").replace("childs", "children")}${node.more ? `, ${count(node.more)} more` : ""}`;
  return [row("", `${readable(node.prefix) || "root"}: ${about}`, [node.label, "", node.addr]), ...rows];
}

let asking = 0;
async function open(isMove) {
  const match = /^#tree=([0-9a-fA-F]*)$/.exec(location.hash);
  const asked = match ? match[1] : "", turn = ++asking;
  path(asked);
  try {
    const told = await read("/tree.json?prefix=" + asked);
    if (turn !== asking) return;
    shownRecord(told);
    at("tree").replaceChildren(...children(told.node, asked));
  } catch (error) {
    if (turn !== asking) return;
    at("record").replaceChildren();
    at("tree").replaceChildren(element("div", "This cannot be shown: " + error.message, { class: "empty" }));
  }
  if (isMove && match) at("tree-section").scrollIntoView({ block: "nearest" });
}
