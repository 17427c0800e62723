// Charts over time, drawn on canvases: lines, and the heat map of latencies. All of them show the
// same span and point at the same moment.

const MARGIN = { left: 64, right: 6, top: 8, bottom: 20 };
/// The pointer's position, as a share of the span; null if it is on no chart.
let pointed = null;
/// The chart that the pointer is on, and its height there.
let pointedHeight = { id: null, y: 0 };
/// The buckets that the heat map shows, and their positions.
let heatRows = null;

/// Round steps up to at least the largest value; for bytes, powers of two of a unit.
function ticks(most, isBytes) {
  const base = isBytes ? 1024 : 10, steps = isBytes ? [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] : [1, 2, 5, 10];
  const wanted = Math.max(most, isBytes ? 4 : 1e-9) / 4;
  const power = base ** Math.floor(Math.log(wanted) / Math.log(base));
  const step = power * steps.find(step => step * power >= wanted * 0.9999);
  const many = Math.max(1, Math.ceil(most / step - 1e-9));
  return Array.from({ length: many + 1 }, (_, place) => place * step);
}

/// Sets up a canvas at its size on the screen. Returns its drawing context.
function canvasOf(box, height) {
  let canvas = box.querySelector("canvas");
  if (!canvas) { canvas = element("canvas", undefined, { role: "img" }); box.append(canvas); }
  const sharp = devicePixelRatio || 1, width = box.clientWidth, tall = height || box.clientHeight;
  if (height) canvas.style.height = height + "px";
  const [across, down] = [Math.round(width * sharp), Math.round(tall * sharp)];
  if (canvas.width !== across || canvas.height !== down) { canvas.width = across; canvas.height = down; }
  const pen = canvas.getContext("2d");
  pen.setTransform(sharp, 0, 0, sharp, 0, 0);
  pen.clearRect(0, 0, width, tall);
  pen.font = "11px system-ui, sans-serif";
  return { canvas, pen, width, height: tall };
}

/// The part of a canvas that a chart's values cover.
function frame(id) {
  const made = canvasOf(at(id));
  made.x = share => MARGIN.left + (made.width - MARGIN.left - MARGIN.right) * share;
  made.bottom = made.height - MARGIN.bottom;
  made.y = share => made.bottom - (made.bottom - MARGIN.top) * share;
  return made;
}

function rule(pen, fromX, fromY, toX, toY) {
  pen.beginPath();
  pen.moveTo(fromX, fromY);
  pen.lineTo(toX, toY);
  pen.stroke();
}

function label(made, text, x, y, align) {
  const { pen } = made;
  pen.textAlign = align;
  pen.fillStyle = colour("soft");
  pen.fillText(text, x, y);
}

function verticalAxis(made, marks) {
  const { pen } = made;
  pen.lineWidth = 1;
  pen.strokeStyle = colour("grid");
  for (const [share, text] of marks) {
    const y = Math.round(made.y(share)) + 0.5;
    rule(pen, MARGIN.left, y, made.width - MARGIN.right, y);
    label(made, text, MARGIN.left - 8, y + 3.5, "right");
  }
}

function timeAxis(made, view) {
  const { parts, span, name } = view;
  label(made, "−" + name.replace(" ", SPACE), made.x(0), made.height - 4, "left");
  const apart = made.width > 360 ? 1 : 2;
  for (let part = parts - apart; part > 0; part -= apart) {
    label(made, "−" + duration(span * part / parts), made.x(1 - part / parts), made.height - 4, "center");
  }
  label(made, "now", made.width - MARGIN.right, made.height - 4, "right");
}

function pointer(made) {
  if (pointed === null) return;
  made.pen.strokeStyle = colour("faint");
  made.pen.lineWidth = 1;
  rule(made.pen, made.x(pointed), MARGIN.top, made.x(pointed), made.bottom);
}

/// The position in the span of a point's end; positions left of 0 are older than the span.
function placeOf(point, view) { return 1 - (view.uptime_ms - point.at_ms) / (1000 * view.span); }

/// The point under the pointer, if there is one.
function pointAt(view) {
  if (pointed === null) return null;
  const when = view.uptime_ms - (1 - pointed) * view.span * 1000;
  return view.points.find(point => when > point.at_ms - point.span_ms && when <= point.at_ms) || null;
}

/// Draws lines, [colour, value of a point] each; or stacked areas, the first at the bottom.
function lines(id, view, series, options) {
  const made = frame(id), { pen } = made;
  const shown = view.points.filter(point => placeOf(point, view) >= 0);
  const values = series.map(([, value]) => value);
  const height = place => point => options.isStack ? sum(values.slice(0, place + 1).map(value => value(point))) : values[place](point);
  const most = Math.max(options.least || 0, ...series.flatMap((_, place) => shown.map(height(place))));
  const marks = ticks(most, options.isBytes), top = marks[marks.length - 1];
  verticalAxis(made, marks.map(value => [value / top, value ? options.text(value, round) : "0"]));
  timeAxis(made, view);
  for (const run of runs(shown, view)) {
    const outline = place => run.map(point => [made.x(placeOf(point, view)), place < 0 ? made.bottom : made.y(height(place)(point) / top)]);
    series.forEach(([paint], place) => {
      if (options.isStack) fill(pen, [...outline(place), ...outline(place - 1).reverse()], paint);
      stroke(pen, outline(place), paint, options.isStack ? 1 : 1.6);
    });
  }
  pointer(made);
  const last = shown[shown.length - 1];
  made.canvas.setAttribute("aria-label", options.name + (last ? ": " + values.map(value => options.text(value(last))).join(", ") : ""));
}

function fill(pen, points, paint) {
  pen.globalAlpha = 0.3;
  pen.fillStyle = paint;
  pen.beginPath();
  points.forEach(([x, y], place) => place ? pen.lineTo(x, y) : pen.moveTo(x, y));
  pen.fill();
  pen.globalAlpha = 1;
}

function stroke(pen, points, paint, width = 1.5) {
  pen.strokeStyle = paint;
  pen.lineWidth = width;
  pen.lineJoin = "round";
  pen.beginPath();
  points.forEach(([x, y], place) => place ? pen.lineTo(x, y) : pen.moveTo(x, y));
  if (points.length === 1) pen.lineTo(points[0][0] + 1.5, points[0][1]);
  pen.stroke();
}

/// Points in a row, without gaps between them.
function runs(points, view) {
  const all = [];
  let last = null;
  for (const point of points) {
    if (last && point.at_ms - point.span_ms - last.at_ms < 1000 * view.step) all[all.length - 1].push(point);
    else all.push([point]);
    last = point;
  }
  return all;
}

/// The value that a share of a histogram lies below, with an even spread within a bucket.
function quantile(buckets, bounds, share) {
  let left = buckets.reduce((sum, many) => sum + many, 0) * share;
  for (let place = 0; place < buckets.length; place += 1) {
    const low = place ? bounds[place - 1] : 0, high = bounds[place] === null ? low : bounds[place];
    if (buckets[place] > 0 && left <= buckets[place]) return low + (high - low) * left / buckets[place];
    left -= buckets[place];
  }
  return NaN;
}

function mixed(from, to, share) {
  const part = (text, place) => parseInt(text.slice(1 + 2 * place, 3 + 2 * place), 16);
  return `rgb(${[0, 1, 2].map(place => Math.round(part(from, place) + (part(to, place) - part(from, place)) * share)).join(" ")})`;
}

/// Colours from few to many.
function ramp() {
  const [low, mid, high] = ["heat-low", "heat-mid", "heat-high"].map(colour);
  return Array.from({ length: 65 }, (_, place) => place < 32 ? mixed(low, mid, place / 32) : mixed(mid, high, (place - 32) / 32));
}

/// The non-empty buckets in a view, and at least three decades: [first, last].
function bucketsShown(points, many) {
  const used = Array.from({ length: many }, (_, place) => place).filter(place => points.some(point => point.latency[place] > 0));
  let first = used.length ? Math.max(0, used[0] - 1) : 0, last = used.length ? Math.min(many - 1, used[used.length - 1] + 1) : 9;
  while (last - first < 8 && (first > 0 || last < many - 1)) { if (last < many - 1) last += 1; else first -= 1; }
  return [first, last];
}

/// Draws the number of commands by duration, over time; the median and the 99th percentile on top.
function heat(id, view) {
  const made = frame(id), { pen } = made, { bounds } = view;
  const shown = view.points.filter(point => placeOf(point, view) >= 0);
  const [first, last] = bucketsShown(shown, bounds.length), rows = last - first + 1;
  heatRows = { id, first, rows, bottom: made.bottom };
  const colours = ramp();
  const density = point => Math.max(...point.latency) / point.span_ms;
  const most = Math.max(1e-9, ...shown.map(density));
  for (const point of shown) {
    const left = made.x(Math.max(0, placeOf({ at_ms: point.at_ms - point.span_ms }, view))), right = made.x(placeOf(point, view));
    for (let place = first; place <= last; place += 1) {
      if (!point.latency[place]) continue;
      const share = Math.log1p(999 * point.latency[place] / point.span_ms / most) / Math.log(1000);
      pen.fillStyle = colours[Math.round(64 * Math.min(1, share))];
      const top = made.y((place - first + 1) / rows), bottom = made.y((place - first) / rows);
      pen.fillRect(left, top, Math.max(1, right - left) + 0.35, bottom - top - 0.6);
    }
  }
  // A bound lies on the edge above its bucket; decades have labels.
  const decades = bounds.map((bound, place) => [bound, place]).filter(([bound, place]) => bound && /^1e/.test(bound.toExponential()) && place >= first - 1 && place <= last);
  verticalAxis(made, decades.map(([bound, place]) => [(place - first + 1) / rows, latency(bound, round)]));
  timeAxis(made, view);
  const height = nanos => {
    const place = bounds.findIndex(bound => bound === null || nanos <= bound);
    const low = place ? bounds[place - 1] : bounds[0] / 2, high = bounds[place] || 2 * low;
    return made.y((place - first + Math.min(1, Math.max(0, Math.log(nanos / low) / Math.log(high / low)))) / rows);
  };
  for (const [paint, share] of [[colour("tail"), 0.99], [colour("median"), 0.5]]) {
    for (const run of runs(shown.filter(point => point.latency.some(many => many > 0)), view)) {
      const points = run.map(point => [made.x(placeOf(point, view)), height(quantile(point.latency, bounds, share))]);
      stroke(pen, points, colour("card"), 4);
      stroke(pen, points, paint, 1.8);
    }
  }
  pointer(made);
  const now = shown[shown.length - 1];
  made.canvas.setAttribute("aria-label", "Latency over time" + (now ? `: median ${latency(quantile(now.latency, bounds, 0.5))}, 99th percentile ${latency(quantile(now.latency, bounds, 0.99))}` : ""));
}

/// The bucket under the pointer in the heat map; null if there is none.
function bucketAt() {
  if (!heatRows || pointed === null || pointedHeight.id !== heatRows.id) return null;
  const { first, rows, bottom } = heatRows, row = Math.floor((bottom - pointedHeight.y) / (bottom - MARGIN.top) * rows);
  return row >= 0 && row < rows ? first + row : null;
}

/// Makes the pointer on a chart mark the same moment on all of them.
function follow(id, redraw) {
  at(id).addEventListener("pointermove", event => {
    const box = at(id).getBoundingClientRect(), room = box.width - MARGIN.left - MARGIN.right;
    const share = (event.clientX - box.left - MARGIN.left) / room;
    pointed = share >= 0 && share <= 1 ? share : null;
    pointedHeight = { id, y: event.clientY - box.top };
    redraw();
  });
  at(id).addEventListener("pointerleave", () => { pointed = null; redraw(); });
}
