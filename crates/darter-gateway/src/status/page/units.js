// Numbers in readable units, and elements made of text.

const SPACE = "\u00a0", NONE = "–";

function grouped(value, digits = 0) {
  return value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
}

/// Three significant digits.
function digits3(value) { return grouped(value, value >= 99.95 || value === 0 ? 0 : value >= 9.995 ? 1 : 2); }

/// As `digits3`, without zeros at the end: for ticks and limits, which are round.
function round(value) { return digits3(value).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, ""); }

const THOUSANDS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/// A count: in full up to five digits, then as 1.2 M.
function count(value) {
  if (!Number.isFinite(value)) return NONE;
  if (Math.abs(value) < 1e5) return grouped(value, Number.isInteger(value) || value >= 100 ? 0 : value >= 10 ? 1 : 2);
  const [size, unit] = THOUSANDS.find(([size]) => value >= size * 0.9995);
  return digits3(value / size) + SPACE + unit;
}

function rate(value, write = digits3) {
  if (!Number.isFinite(value)) return NONE;
  const found = THOUSANDS.find(([size]) => value >= size * 0.9995);
  if (found) return write(value / found[0]) + SPACE + found[1] + "/s";
  return (value >= 10 ? grouped(value) : round(value)) + SPACE + "/s";
}

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function bytes(value, write = digits3) {
  if (!Number.isFinite(value)) return NONE;
  let unit = 0;
  while (value >= 1000 && unit < BYTES.length - 1) { value /= 1024; unit += 1; }
  if (unit === 0 && value > 0 && value < 1) return "<" + SPACE + "1" + SPACE + "B";
  return (unit ? write(value) : grouped(value)) + SPACE + BYTES[unit];
}

/// A short time, as of a command.
function latency(nanos, write = digits3) {
  if (!Number.isFinite(nanos)) return NONE;
  const found = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]].find(([size]) => nanos >= size * 0.9995);
  return found ? write(nanos / found[0]) + SPACE + found[1] : grouped(nanos) + SPACE + "ns";
}

/// A long time, as of a server: its two largest units.
function duration(seconds) {
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  let left = Math.max(0, Math.floor(seconds));
  const first = parts.findIndex(([size]) => left >= size);
  if (first < 0) return "0" + SPACE + "s";
  const shown = [];
  for (const [size, unit] of parts.slice(first, first + 2)) {
    const many = Math.floor(left / size);
    left -= many * size;
    if (many) shown.push(many + SPACE + unit);
  }
  return shown.join(" ");
}

function percent(share) {
  if (!Number.isFinite(share)) return NONE;
  return (share > 0 && share < 0.001 ? "< 0.1" : round(100 * share)) + SPACE + "%";
}

function plural(many, one) { return `${count(many)} ${one}${many === 1 ? "" : "s"}`; }

function clock(unixMs, withSeconds = true) {
  const options = { hour: "2-digit", minute: "2-digit", hour12: false };
  if (withSeconds) options.second = "2-digit";
  return new Date(unixMs).toLocaleTimeString("en-GB", options);
}

// Text from the pool or from clients is untrusted: it enters the page only as text.

const at = id => document.getElementById(id);

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = String(text);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function say(id, text) { if (at(id).textContent !== text) at(id).textContent = text; }

/// Fills a table. Columns whose names begin with * are left out on a phone.
function table(id, header, rows) {
  const cell = (name, text, column) => {
    const made = text instanceof Node ? text : element(name, text);
    if (header[column].startsWith("*")) made.classList.add("spare");
    return made;
  };
  const line = (name, cells) => {
    const made = element("tr");
    made.append(...cells.map((text, column) => cell(name, text, column)));
    return made;
  };
  at(id).replaceChildren(line("th", header.map(name => name.replace("*", ""))), ...rows.map(row => line("td", row)));
}

/// A legend of colours: [colour, text], and "line" as the third element for a line.
function key(id, entries) {
  at(id).replaceChildren(...entries.map(([colour, text, kind]) => {
    const entry = element("span"), mark = element("i", undefined, kind ? { class: kind } : {});
    if (colour) mark.style.background = colour;
    entry.append(mark, text);
    return entry;
  }));
}

function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim(); }

const PALETTE = 8;

/// A colour of the palette; beyond it, hues that are far apart.
function seriesColour(number) { return number < PALETTE ? colour("c" + number) : `hsl(${number * 137.5 % 360} 45% 52%)`; }
