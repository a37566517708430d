"use strict";
/* Elements, numbers and charts. Texts go into the page as text alone: nothing is ever parsed. */

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {}))
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  made.append(...children.filter((one) => one !== null && one !== undefined).map((one) => one instanceof Node ? one : String(one)));
  return made;
}

function drawn(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function count(number) {
  if (number === null || number === undefined) return "–";
  for (const unit of ["", "k", "M", "G"]) {
    if (Math.abs(number) < 999.5) return (unit && Math.abs(number) < 9.95 ? number.toFixed(1) : Math.round(number)) + unit;
    number /= 1000;
  }
  return number.toFixed(1) + "T";
}

function seconds(number) {
  if (number === null || number === undefined) return "–";
  const size = Math.abs(number);
  if (size < 10) return number.toFixed(size < 1 ? 2 : 1) + " s";
  if (size < 120) return Math.round(number) + " s";
  if (size < 7200) return Math.round(number / 60) + " min";
  if (size < 172800) return (number / 3600).toFixed(1) + " h";
  return Math.round(number / 86400) + " days";
}

const megabytes = (bytes) => bytes === null || bytes === undefined ? "–" : (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0) + " MB";
const moment = (at) => at ? new Date(at * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "–";
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

/* A chart over micro-batches that lives as long as its panel, so that only its data change. */
class Chart {
  constructor(place, title, lines, value) {
    this.zoom = null;
    this.lines = lines;
    this.value = value;
    this.note = element("figcaption", {});
    this.box = element("div", {role: "img"});
    this.figure = element("figure", {}, this.box, this.note);
    place.append(this.figure);
    this.title = title;
    this.plot = null;
  }
  draw(series, from = 0) {
    const data = [series.batch || [], ...this.lines.map((line) => line.of(series))].map((all) => all.slice(from));
    if (!this.plot) this.plot = new uPlot(this.options(), data, this.box);
    else if (this.box.clientWidth && this.box.clientWidth !== this.plot.width) this.plot.setSize(this.size());
    this.plot.setData(data, !this.zoom);
    if (this.zoom) this.plot.setScale("x", this.zoom);
    const last = this.lines.map((line, n) => line.label + " " + this.value(data[n + 1].at(-1)));
    this.note.textContent = "now: " + last.join(", ");
    this.box.setAttribute("aria-label", this.title + " over micro-batches; now " + last.join(", "));
  }
  size() { return {width: Math.max(240, this.box.clientWidth), height: 190}; }
  /* What was chosen by dragging stays chosen when micro-batches come, until a double click. */
  chosen(plot) { if (plot.select.width > 0) this.zoom = {min: plot.posToVal(plot.select.left, "x"), max: plot.posToVal(plot.select.left + plot.select.width, "x")}; }
  options() {
    const axis = {stroke: colour("faint"), grid: {stroke: colour("line"), width: 1}, ticks: {stroke: colour("line")}};
    return {
      ...this.size(),
      scales: {x: {time: false}, y: {range: (u, low, high) => [Math.min(0, low || 0), Math.max(high || 0, 1e-3) * 1.05]}},
      legend: {live: false},
      cursor: {drag: {x: true, y: false}, bind: {dblclick: (plot, target, handle) => (event) => { this.zoom = null; return handle(event); }}},
      hooks: {setSelect: [(plot) => this.chosen(plot)]},
      axes: [{...axis, label: "micro-batch", labelSize: 18, labelGap: 2, labelFont: "12px system-ui, sans-serif", size: 34, values: (u, ticks) => ticks.map((t) => Number.isInteger(t) ? t : "")}, {...axis, size: 72, values: (u, ticks) => ticks.map((t) => this.value === count && !Number.isInteger(t) ? "" : this.value(t))}],
      series: [{label: "micro-batch"}, ...this.lines.map((line) => ({
        label: line.label, stroke: colour(line.colour), width: 1.7, dash: line.dash, spanGaps: true, points: {show: false},
      }))],
    };
  }
  forget() { if (this.plot) this.plot.destroy(); this.plot = null; }
}

/* The cells of a plan, shaded by how long each worker computed. */
function planPicture(plan, workers) {
  const wide = 320, high = Math.min(200, 44 * plan.cells.length), top = 20, side = plan.down ? 24 : 0;
  const svg = drawn("svg", {viewBox: `0 0 ${wide + side} ${high + top + 4}`, width: wide + side, class: "plan", role: "img"});
  svg.append(drawn("title", {}, `${plan.text}: ${plan.cells.length} by ${plan.cells[0].length} cells, shaded by time computed`));
  svg.append(drawn("text", {x: side, y: 14, class: "faint"}, plan.across || ""));
  if (plan.down) svg.append(drawn("text", {x: 0, y: 0, class: "faint", transform: `translate(14 ${high + top}) rotate(-90)`}, plan.down));
  const busy = new Map(workers.map((one) => [one.worker, one.busy_seconds])), most = Math.max(1e-9, ...busy.values());
  const shares = plan.widths || plan.cells[0].map(() => 1), whole = shares.reduce((a, b) => a + b, 0) || 1;
  plan.cells.forEach((line, row) => {
    let x = side, cut = 0;
    line.forEach((worker, column) => {
      const width = wide * shares[column] / whole, height = high / plan.cells.length;
      const spent = busy.get(worker) || 0;
      const cell = drawn("rect", {x, y: top + row * height, width: Math.max(1, width - 2), height: height - 2, rx: 3, fill: colour("bar"), "fill-opacity": 0.12 + 0.75 * spent / most, stroke: colour("line")});
      const cuts = plan.widths ? `, ranges ${cut} to ${cut + shares[column] - 1} of ${whole}` : "";
      cell.append(drawn("title", {}, `worker ${worker}: ${seconds(spent)}${cuts}`));
      cut += shares[column];
      svg.append(cell);
      if (width > 18) svg.append(drawn("text", {x: x + width / 2 - 4, y: top + row * height + height / 2 + 4}, worker));
      x += width;
    });
  });
  return svg;
}

/* Plans over micro-batches: solid while one stamps rows, faint while it is only live. */
function livesPicture(lives, batch, room = 0) {
  const wide = Math.min(600, room || 600), line = 30, end = Math.max(batch + 2, ...lives.map((one) => one.first + 1));
  const svg = drawn("svg", {viewBox: `0 0 ${wide} ${lives.length * line + 18}`, width: wide, role: "img"});
  svg.append(drawn("title", {}, "Live plans over micro-batches"));
  const x = (at) => wide * Math.min(end, at) / end;
  lives.forEach((one, row) => {
    const y = row * line + 14, stamps = one.replaced ?? end, gone = one.retired ?? end;
    svg.append(drawn("rect", {x: x(one.first), y, width: Math.max(2, x(stamps) - x(one.first)), height: 10, fill: colour("bar")}));
    if (one.replaced !== null) svg.append(drawn("rect", {x: x(one.replaced), y, width: Math.max(2, x(gone) - x(one.replaced)), height: 10, fill: colour("bar"), "fill-opacity": .35}));
    const late = x(one.first) > wide / 2;  // its words end at the edge, where they would be cut
    svg.append(drawn("text", {x: late ? wide : x(one.first), "text-anchor": late ? "end" : "start", y: y - 3}, `plan ${one.epoch}, ${one.plan}${one.cause ? ": " + one.cause : ""}`));
  });
  svg.append(drawn("text", {x: 0, y: lives.length * line + 14, class: "faint"}, `micro-batch 0 to ${end}`));
  return svg;
}
