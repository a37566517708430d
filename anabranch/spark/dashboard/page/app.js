"use strict";
/* The page: takes in what the driver tells, and shows one query at a time. */

const at = (id) => document.getElementById(id);
const known = {subjects: new Map(), rows: {}, searches: {}, topics: [], state: null, chosen: null, search: {}, asking: false, gone: null};
const LIGHTS = {good: ["✓", "Good"], warn: ["!", "Warning"], bad: ["✕", "Bad"], off: ["–", "No verdict"]};
const WORDS = {correlate: ["rows", "pairs"], nearest: ["objects", "hits"], assemble: ["events", "instances"],
  dedupe: ["rows", "rows emitted"], groups: ["pairs", "events"], stream: ["rows", ""], "": ["rows", ""]};
const CARD = 155;  // pixels that a card needs
const RECENT = 10;  // micro-batches that the rules look at
const COMPARES = ["correlate", "dedupe", "nearest"];
const SHORT = ["score", "distance"];  // of which four digits are enough to look at
const EVENTS = {groups_opened: "opened", groups_grown: "grew", groups_merged: "merged", groups_closed: "closed"};

/* ---------------------------------------------------------------- what the driver tells */

function takeIn(state, whole) {
  let missed = false;
  for (const subject of state.subjects) {
    const had = known.subjects.get(subject.id);
    if (whole) { known.subjects.set(subject.id, subject); continue; }
    const fresh = had ? subject.count - had.count : Infinity, tail = (subject.series.batch || []).length;
    if (!had || had.thinned !== subject.thinned || fresh > tail) { missed = true; continue; }
    for (const [name, values] of Object.entries(had.series)) {
      const more = subject.series[name] || [];
      if (fresh > 0) values.push(...more.slice(more.length - fresh));
    }
    if (subject.shown !== had.shown && !state.rows) missed = true;
    known.subjects.set(subject.id, {...subject, series: had.series});
  }
  for (const id of [...known.subjects.keys()])
    if (!state.subjects.some((one) => one.id === id)) known.subjects.delete(id);
  if (state.rows) known.rows = state.rows;
  if (state.searches) known.searches = state.searches;
  if (state.topics) known.topics = state.topics;
  known.state = state;
  return missed;
}

async function askForAll() {
  if (known.asking) return;
  known.asking = true;
  try {
    const answer = await fetch("api/state.json");
    if (answer.ok) { takeIn(await answer.json(), true); render(); }
  } catch { /* the events say that the driver is gone */ } finally { known.asking = false; }
}

/* A browser allows six connections to a driver: pages that nobody sees let theirs go. */
let events = null;

function listen() {
  if (document.hidden || events) return;
  events = new EventSource("events");
  events.onopen = () => { at("link").textContent = "live"; known.gone = null; askForAll(); };
  events.onerror = () => {
    at("link").textContent = "no answer";
    if (!known.gone) known.gone = new Date().toTimeString().slice(0, 5);
    renderGone();
  };
  events.onmessage = (event) => {
    const missed = takeIn(JSON.parse(event.data), false);
    if (missed) askForAll();
    else render();
  };
}

/* ---------------------------------------------------------------- panels */

const over = (top, bottom) => (s) => (s[top] || []).map((v, n) => v === null || !s[bottom][n] ? null : v / s[bottom][n]);
const column = (name) => (s) => (s[name] || []).map((v) => v ?? null);
const constant = (value) => (s) => (s.batch || []).map(() => value);

class Panel {
  constructor(id, title, wide) {
    this.body = element("div", {});
    this.head = element("h3", {id: id + "-title"}, title);
    this.section = element("section", {class: wide ? "panel wide" : "panel", id, "aria-labelledby": id + "-title"}, this.head, this.body);
  }
  show(...children) { this.body.replaceChildren(...children); this.section.hidden = children.length === 0; }
}

class ChartPanel extends Panel {
  constructor(id, title, lines, value) { super(id, title); this.chart = new Chart(this.body, title, lines, value); }
  update(subject) { this.chart.draw(subject.series); }
}

/* The micro-batch that starts the workers takes far longer, and would flatten all others. */
class PacePanel extends ChartPanel {
  update(subject) { const batch = subject.series.batch; this.chart.draw(subject.series, batch.length > 1 && batch[0] === 0 ? 1 : 0); }
}

function table(heads, rows, texts = []) {
  const kind = (n) => texts.includes(n) ? "text" : null;
  return element("div", {class: "scroll"}, element("table", {},
    element("thead", {}, element("tr", {}, ...heads.map((head, n) => element("th", {scope: "col", class: kind(n)}, head)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell, n) => element("td", {class: kind(n)}, cell)))))));
}

function bar(value, most) {
  const made = element("span", {class: "bar"});
  made.style.width = (most > 0 ? 7 * value / most : 0) + "rem";
  return made;
}

function workersPanel() {
  const panel = new Panel("workers", "Workers");
  panel.update = (subject) => {
    const all = subject.workers, compares = all.some((one) => "comparisons" in one);
    const live = all.filter((one) => one.live), most = Math.max(0, ...live.map((one) => one.busy_seconds));
    const mean = live.reduce((sum, one) => sum + one.busy_seconds, 0) / (live.length || 1);
    if (!all.length) return panel.show();
    panel.show(
      element("p", {class: "faint"}, mean > 0 ? `slowest ${seconds(most)}, mean ${seconds(mean)}: ${(most / mean).toFixed(1)} times` : "no work in the newest micro-batch"),
      table(["worker", "busy", "", compares ? "compared" : "events", "state rows", "state"], all.map((one) => [
        one.live ? one.worker : `${one.worker}, of an earlier plan`, seconds(one.busy_seconds), bar(one.busy_seconds, most), count(compares ? one.comparisons : one.rows_in), count(one.state_rows), megabytes(one.state_bytes)]), [2]));
  };
  return panel;
}

function planPanel() {
  const panel = new Panel("plan", "Plan");
  panel.update = (subject) => {
    const plan = subject.plan, made = [];
    if (plan.trouble) made.push(element("p", {}, "The plan log cannot be read: " + plan.trouble));
    if (plan.text) made.push(element("p", {}, "In force: ", element("strong", {}, plan.text)), planPicture(plan, subject.workers));
    if (plan.lives) {
      made.push(livesPicture(plan.lives, subject.series.batch.at(-1) || 0, panel.body.clientWidth));
      made.push(element("p", {}, "Next change: " + (plan.next.join("; ") || "none is asked for")));
      made.push(element("ol", {class: "story"}, ...plan.story.map((line) => element("li", {}, line))));
    }
    panel.show(...made);
  };
  return panel;
}

function predictionsPanel() {
  const panel = new Panel("predictions", "Predicted and seen");
  panel.update = (subject) => {
    if (!subject.predictions.length) return panel.show(...(subject.unpredicted ? [element("p", {class: "faint"}, "No prediction. " + subject.unpredicted)] : []));
    panel.show(table(["figure", "predicted", "seen", "error"], subject.predictions.map((one) => [
      one.what, number(one.predicted), number(one.observed),
      one.error === null ? "–" : (one.error >= 0 ? "+" : "−") + Math.abs(100 * one.error).toFixed(0) + " %"])));
  };
  return panel;
}
const number = (value) => value < 100 ? value.toFixed(2) : count(value);

function statePanel() {
  const panel = new ChartPanel("state", "State", [{label: "state", colour: "left", of: column("state_bytes")}, {label: "memory of the store", colour: "right", dash: [4, 4], of: column("memory")}], megabytes);
  const note = element("p", {class: "faint"});
  panel.body.prepend(note);
  panel.update = (subject) => {
    panel.chart.draw(subject.series);
    const s = subject.series, grown = subject.growth;
    note.textContent = `${count(s.state_rows.at(-1))} rows, ${megabytes(s.state_bytes.at(-1))}` +
      (grown ? `; ${grown.bytes >= 0 ? "+" : "−"}${megabytes(Math.abs(grown.bytes))} and ${grown.rows >= 0 ? "+" : "−"}${count(Math.abs(grown.rows))} rows per hour` : "") +
      (s.commit.at(-1) !== null ? `; commit ${seconds(s.commit.at(-1) / 1000)}` : "");
  };
  return panel;
}

function lostPanel() {
  const panel = new ChartPanel("lost", "Late and rejected rows", [{label: "late", colour: "warn", of: column("late")}, {label: "rejected", colour: "bad", of: column("rejected")}], count);
  const list = element("div", {});
  panel.body.append(list);
  panel.update = (subject) => {
    panel.chart.draw(subject.series);
    const {say, rows} = subject.rejects;
    list.replaceChildren(...(say ? [element("p", {class: "faint"}, say)] : []), ...(rows.length ? [
      table(["batch", "input", "why", "row"], rows.map((one) => [one.batch, one.side, one.reason,
        Object.entries(one.row).map(([name, text]) => `${name}: ${text}`).join(", ")]), [1, 2, 3])] : []));
  };
  return panel;
}

function reasonsPanel() {
  const panel = new Panel("reasons", "Windows");
  panel.update = (subject) => {
    const all = Object.entries(subject.reasons), sum = all.reduce((total, [, n]) => total + n, 0);
    if (subject.verb !== "assemble") return panel.show();
    const complete = ["complete", "full", "end"].reduce((total, why) => total + (subject.reasons[why] || 0), 0), first = subject.total.instances || 0;
    panel.show(
      element("p", {}, `${count(subject.series.open_windows.at(-1))} windows are open. ` + (sum ? `${(100 * complete / sum).toFixed(1)} % closed as full, complete or by their end; ` : "") +
        (first ? `${(100 * (subject.total.revisions || 0) / first).toFixed(1)} revisions per 100 instances.` : "")),
      table(["why they closed", "windows", "share"], all.sort((a, b) => b[1] - a[1]).map(([why, n]) => [why, count(n), (100 * n / sum).toFixed(1) + " %"])));
  };
  return panel;
}

function groupsPanel() {
  const panel = new Panel("groups", "Groups");
  panel.update = (subject) => {
    if (subject.verb !== "groups") return panel.show();
    const why = Object.entries(subject.reasons).sort((a, b) => b[1] - a[1]);
    panel.show(
      element("p", {}, `${count(subject.series.open_groups.at(-1))} groups are open.`),
      table(["event", "so far"], Object.entries(EVENTS).map(([name, kind]) => [kind, count(subject.total[name])])),
      ...(why.length ? [table(["pairs that connect nothing", "so far"], why.map(([reason, n]) => [reason, count(n)]))] : []));
  };
  return panel;
}

function parts(text, differs) {
  const image = /^data:image\/(png|jpeg);base64,[A-Za-z0-9+/=]+$/.test(text);
  return image ? element("img", {src: text, alt: "picture"}) : differs ? element("mark", {}, text) : text;
}

const short = (name, text) => SHORT.includes(name) && text !== "" && isFinite(text) ? String(Number(Number(text).toPrecision(4))) : text;
const fact = (name, text) => element("td", {class: text.length < 40 ? "text fact" : "text fact long", title: text.length < 40 ? text : null}, parts(short(name, text), false));

/* All columns of one side in one cell, in the order that the head of the table has. */
const side = (row, of) => element("td", {class: "text side"}, ...row.sides.flatMap((one, n) =>
  [...(n ? [" · "] : []), element("span", {title: one.name}, ...one[of].map(([text, differs]) => parts(text, differs)))]));

function matches(rows) {
  const facts = [...new Set(rows.flatMap((row) => Object.keys(row.facts)))], sides = rows[0].sides.map((one) => one.name).join(" · ");
  const heads = [...facts.map((name) => [name, "text"]), ...(sides ? [[`left: ${sides}`, "text left"], [`right: ${sides}`, "text right"]] : [])];
  return element("table", {},
    element("thead", {}, element("tr", {}, ...heads.map(([name, kind]) => element("th", {scope: "col", class: kind}, name)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {"aria-label": `row of micro-batch ${row.batch}`},
      ...facts.map((name) => fact(name, row.facts[name] ?? "")), ...(sides ? [side(row, "left"), side(row, "right")] : [])))));
}

function rowsPanel() {
  const panel = new Panel("matches", "Newest rows", true);
  panel.body.tabIndex = 0;  // it scrolls, so the keyboard must reach it
  panel.body.setAttribute("aria-labelledby", "matches-title");
  panel.body.setAttribute("role", "region");
  let drawnOf = null;
  panel.update = (subject) => {
    const labels = Object.entries(known.rows[subject.query] || {}).filter(([, form]) => form.rows.length);
    const off = known.state.rows_off;
    if (!labels.length) { drawnOf = null; return panel.show(...(off ? [element("p", {}, off)] : [])); }
    const stamp = subject.query + subject.shown;
    if (stamp === drawnOf) return undefined;
    drawnOf = stamp;
    panel.show(...labels.flatMap(([label, form]) => [
      element("h4", {}, `${label}: the newest ${form.rows.length}`), matches(form.rows)]));
  };
  return panel;
}

function topic(one) {
  const fresh = one.event !== "closed" && !one.repeated;
  return element("article", {class: fresh ? "topic" : "topic closed", "aria-label": `topic ${one.topic}`},
    element("p", {}, element("strong", {}, one.words || one.channels.map((of) => of.channel).join(" and ")),
      ` ${one.event}${one.repeated ? ", shown again by its channel" : ""}, heat ${one.heat.toFixed(1)}, best score ${one.score.toFixed(2)}, ${moment(one.began)} to ${moment(one.last)}${Array.isArray(one.concepts) && one.concepts.length ? `, seen: ${one.concepts.join(", ")}` : ""}${typeof one.age === "number" ? `, shown ${seconds(one.age)} after its segments` : ""}`),
    ...one.channels.map((of) => element("div", {class: "channel"}, element("span", {class: "faint"}, of.channel),
      ...of.pictures.map(([t, picture]) => picture ? element("img", {src: picture, alt: `${of.channel} at ${moment(t)}`, title: moment(t)}) : element("span", {}, moment(t))))));
}

function topicsPanel() {
  const panel = new Panel("topics", "Topics, hottest first", true);
  let drawn = null, noted = null;
  panel.update = () => {
    const note = known.state.note || "";
    if (drawn === known.topics && noted === note) return;
    [drawn, noted] = [known.topics, note];
    panel.show(...(note ? [element("p", {}, note)] : []), ...known.topics.map(topic));
  };
  return panel;
}

function searchPanel() {
  const panel = new Panel("search", "A saved search: its hits over time", true);
  const choose = element("select", {id: "search-choice"}), list = element("div", {});
  choose.addEventListener("change", () => { known.search.chosen = choose.value; render(); });
  panel.update = (subject) => {
    const searches = Object.assign({}, ...Object.values(known.rows[subject.query] || {}).map((form) => form.searches));
    const names = Object.keys(searches).sort();
    if (subject.verb !== "nearest" || !names.length) return panel.show();
    if (!names.includes(known.search.chosen)) known.search.chosen = names[0];
    if ([...choose.options].map((one) => one.value).join("\n") !== names.join("\n"))
      choose.replaceChildren(...names.map((name) => element("option", {value: name}, name)));
    choose.value = known.search.chosen;
    const hits = searches[known.search.chosen], heads = Object.keys(hits[0]).filter((name) => name !== "query_id");
    list.replaceChildren(table(heads, hits.map((row) => heads.map((name) => row[name])), heads.map((_, n) => n)));
    if (!panel.body.contains(choose)) panel.show(element("label", {for: "search-choice"}, "Search "), choose, list);
    panel.section.hidden = false;
  };
  return panel;
}

/* Of one search everything has come: which object was at each rank, micro-batch by micro-batch. */
function ranksPanel() {
  const panel = new Panel("ranks", "A saved search: its ranks over micro-batches", true);
  panel.update = (subject) => {
    const whole = Object.entries(known.searches[subject.query] || {}).filter(([, batches]) => batches.length);
    if (subject.verb !== "nearest" || !whole.length) return panel.show();
    const entered = whole.some(([, batches]) => batches.some((of) => of.rows.some((row) => "entered_ts" in row)));
    panel.head.textContent = entered ? "A saved search: what entered" : "A saved search: its ranks over micro-batches";
    panel.show(...(entered ? [element("p", {class: "faint"}, "What entered the nearest in a micro-batch, and at which rank. The whole ranks over time need output=\"top\".")] : []), ...whole.flatMap(([search, batches]) => {
      const most = Math.max(1, ...batches.flatMap((of) => of.rows.map((row) => Number(row.rank) || 0)));
      const at = (of, rank) => of.rows.filter((row) => Number(row.rank) === rank)
        .map((row) => `${row.object_id ?? "–"}${row.distance ? ` (${Number(row.distance).toPrecision(3)})` : ""}`).join(" → ");
      const ranks = [...Array(Math.min(most, 20)).keys()].map((n) => n + 1);
      return [element("h4", {}, `${search}: all of it`), table(["batch", ...ranks.map((n) => `rank ${n}`)],
        batches.map((of) => [of.batch, ...ranks.map((n) => at(of, n))]), ranks)];
    }));
  };
  return panel;
}

function tablesPanel() {
  const panel = new Panel("tables", "Tables", true);
  panel.update = () => {
    panel.show(...Object.entries(known.state.tables).flatMap(([name, rows]) => rows.length === 0 ? [] : [
      element("h4", {}, name), table(Object.keys(rows[0]), rows.map((row) => Object.entries(row).map(([key, text]) =>
        key === "unknown" && text !== "0" ? element("mark", {}, text) : text)), [0])]));
  };
  return panel;
}

/* Rates and costs may be far below one, where whole numbers would say nothing. */
const amount = (value) => value < 100 ? String(Number(value.toPrecision(3))) : count(value);

function placementPanel() {
  const panel = new Panel("placement", "Traffic by link", true);
  panel.update = () => {
    const plan = known.state.placement;
    if (!plan) return panel.show();
    const live = plan.at !== undefined, most = Math.max(0, ...plan.links.map((one) => one.cost));
    const against = (cost) => `${amount(cost)}, against ${amount(plan.all_cloud)} with everything uploaded` + (plan.all_cloud ? `: ${(100 * cost / plan.all_cloud).toFixed(0)} %.` : ".");
    const pair = (seen, planned) => live ? [amount(seen || 0), amount(planned)] : [amount(planned)];
    const heads = (name) => live ? [`${name}, seen`, `${name}, planned`] : [`${name}, planned`];
    const stale = live && known.state.now - plan.at > 60 ? ` The hub wrote this ${seconds(known.state.now - plan.at)} ago.` : "";
    panel.show(
      ...(live ? [element("p", {}, `Seen in the last ${seconds(plan.seconds)}, in bytes a second with frames and acknowledgements: cost ${against(plan.seen_cost)}${stale}`)] : []),
      element("p", {}, `Planned: cost ${against(plan.cost)}`),
      table(["link", ...heads("up"), ...heads("down"), "cost, planned", ""], plan.links.map((one) => [one.device, ...pair(one.seen_up, one.up), ...pair(one.seen_down, one.down), amount(one.cost), bar(one.cost, most)]), [live ? 6 : 4]),
      element("p", {class: "faint"}, plan.more ? `and ${plan.more} links more` : ""));
  };
  return panel;
}

function panelsOf(subject) {
  if (!subject || !subject.verb) return [topicsPanel(), tablesPanel(), placementPanel()];
  const [came, found] = WORDS[subject.verb], compares = COMPARES.includes(subject.verb), plain = subject.verb === "stream";
  const flow = subject.verb === "correlate"
    ? [{label: "left rows", colour: "left", of: column("left")}, {label: "right rows", colour: "right", of: column("right")}]
    : [{label: came, colour: "left", of: column("rows")}];
  const pace = [{label: "micro-batch", colour: "left", of: column("seconds")}];
  if (!plain) pace.push({label: "slowest worker", colour: "right", of: column("slowest")});
  if (subject.interval) pace.push({label: "interval", colour: "bad", dash: [6, 4], of: constant(subject.interval)});
  const made = [
    topicsPanel(),
    new PacePanel("pace", "Time of a micro-batch", pace, seconds),
    new ChartPanel("flow", "Rows of a micro-batch", flow, count),
  ];
  // What goes out is of another size than what comes, so it has an axis of its own.
  const out = [{label: found, colour: "good", of: column("found")}, ...(subject.verb === "dedupe" ? [{label: "duplicates", colour: "warn", of: column("duplicates")}] : [])];
  if (found) made.push(new ChartPanel("found", `${found[0].toUpperCase()}${found.slice(1)} of a micro-batch`, out, count));
  if (compares) made.push(new ChartPanel("compared", "Comparisons per second", [{label: "comparisons", colour: "left", of: over("comparisons", "seconds")}], count));
  made.push(new ChartPanel("time", "Watermark behind the clock", [{label: "lag", colour: "left", of: column("lag")}], seconds));
  if (!plain) made.push(lostPanel());
  if (subject.series.backlog.some((one) => one !== null)) made.push(new ChartPanel("backlog", "Backlog", [{label: "not yet read", colour: "right", of: column("backlog")}], count));
  if (subject.verb === "groups") made.push(new ChartPanel("open", "Open groups", [{label: "open", colour: "left", of: column("open_groups")}], count));
  if (subject.verb === "assemble") made.push(new ChartPanel("windows", "Open windows", [{label: "open", colour: "left", of: column("open_windows")}], count));
  if (!plain) made.push(statePanel());
  made.push(workersPanel(), planPanel(), reasonsPanel(), groupsPanel(), predictionsPanel(), rowsPanel(), searchPanel(), ranksPanel(), tablesPanel(), placementPanel());
  return made;
}

/* ---------------------------------------------------------------- the whole */

let panels = [], panelsFor = null, paused = false;

function text(id, words) { if (at(id).textContent !== words) at(id).textContent = words; }

/* The light and its sentence. They are announced when they change, and not when only figures do. */
let announced = null;

function light(kind, word, sentence, what, about, rule) {
  const sign = LIGHTS[kind][0];
  at("health").className = kind;
  text("lamp", sign);
  text("word", word);
  text("sentence", sentence);
  text("do", what);
  document.title = `${sign} ${about}Anabranch`;
  if (announced !== rule) { announced = rule; text("said", `${word}: ${sentence}`); }
}

function renderGone() {
  const subject = known.subjects.get(known.chosen);
  light("off", "No answer", `The driver does not answer since ${known.gone}; below is the last it said.`, "", subject ? `no answer · ${subject.name} · ` : "no answer · ", "gone");
}

function renderHead(subject) {
  const [first, ...others] = subject.health;
  light(first.light, LIGHTS[first.light][1], first.sentence, first.do, `${subject.name} · `, `${subject.id}/${first.light}/${first.rule}`);
  text("name", ["", "stream"].includes(subject.verb) ? subject.name : `${subject.name}: ab.${subject.part}`);
  text("words", subject.words);
  const s = subject.series, up = subject.since ? seconds(known.state.now - subject.since) : "–";
  if (subject.verb) text("facts", `${subject.active ? "running" : "ended"}, first seen ${up} ago, ${subject.count} micro-batches seen` + (subject.runs > 1 ? `, ${subject.runs} runs` : "") +
    (subject.interval ? `, one every ${seconds(subject.interval)}` : "") + `; watermark ${moment(s.watermark.at(-1))}`);
  else text("facts", subject.active ? `started ${up} ago` : `ended; started ${up} ago`);
  at("others").replaceChildren(...others.map((one) => element("li", {class: one.light}, element("span", {}, `${one.sentence} ${one.do}`))));
}

const emitted = (total) => total.pairs ?? total.emitted_rows ?? total.hits ?? total.instances ??
  Object.keys(EVENTS).reduce((sum, name) => sum + (total[name] || 0), 0);

/* What only some sources say is less than what there is. */
const backlog = (left, silent) => left === null || left === undefined ? "unknown" : (silent.length ? "at least " : "") + count(left);

function renderFigures(subject) {
  const [came, found] = WORDS[subject.verb], s = subject.series, last = (name) => (s[name] || []).at(-1), total = subject.total;
  const per = (name) => last(name) === null || !last("seconds") ? null : last(name) / last("seconds");
  const both = (last("left") || 0) + (last("right") || 0);
  const taken = (s.seconds || []).filter((one, n) => one !== null && (s.batch[n] > 0 || s.batch.length === 1)).slice(-RECENT).sort((a, b) => a - b);
  const usual = taken.length ? (taken[(taken.length - 1) >> 1] + taken[taken.length >> 1]) / 2 : null;
  const all = [
    [came, count(last("rows")), count(total.rows_in) + " so far"],
    ...(found ? [[found, count(last("found")), count(emitted(total)) + " so far"]] : []),
    ...(subject.verb === "dedupe" ? [["duplicates", count(last("duplicates")), count(total.duplicates) + " so far"]] : []),
    ...(subject.verb === "groups" ? [["open groups", count(last("open_groups")), count(total.groups_closed) + " closed so far"],
      ["dropped pairs", count(total.dropped_pairs), "so far"]] : []),
    ...(subject.verb === "assemble" ? [["open windows", count(last("open_windows")), ""]] : []),
    ...(!COMPARES.includes(subject.verb) ? [] : [
      ["comparisons", count(per("comparisons")) + "/s", count(total.comparisons) + " so far"],
      ["copies per row", both ? (last("copies") / both).toFixed(2) : "–", ""]]),
    ...(total.sent_at_once || total.withheld ? [["copies sent", count(total.sent_at_once + total.sent_later), `${count(total.withheld)} withheld at first, ${count(total.dropped)} dropped, so far`]] : []),
    ["micro-batch", seconds(usual), (taken.length > 1 ? `median of the last ${taken.length}` : "the first") + (subject.interval ? `, of ${seconds(subject.interval)}` : "")],
    ["backlog", backlog(last("backlog"), subject.silent), subject.silent.length ? `${subject.silent.join(", ")} ${subject.silent.length > 1 ? "do" : "does"} not report it` : last("backlog") === null ? "no source reports it" : "not yet read"],
    ["watermark lag", seconds(last("lag")), last("skew") === null || last("skew") === undefined ? "" : `left ${last("skew") >= 0 ? "ahead" : "behind"} by ${seconds(Math.abs(last("skew")))}`],
    ...(subject.verb === "stream" ? [] : [
      ["late rows", count(last("late")), count(total.late_rows) + " so far"],
      ["rejected rows", count(last("rejected")), count(total.rejected_rows) + " so far"],
      ["state", megabytes(last("state_bytes")), count(last("state_rows")) + " rows"]]),
  ];
  const cards = !subject.verb ? [] : all.map(([name, now, also]) => element("dl", {class: "figure"},
    element("dt", {}, name), element("dd", {}, now, element("small", {}, also))));
  at("figures").replaceChildren(...cards);
  // Lines of equal length, so that no card stands alone in the last one.
  const room = Math.max(1, Math.floor(at("figures").clientWidth / CARD)), lines = Math.ceil(cards.length / room), across = Math.ceil(cards.length / (lines || 1));
  at("figures").style.gridTemplateColumns = `repeat(${across || 1}, 1fr)`;
  if (cards.length % across) cards.at(-1).style.gridColumn = `span ${across - cards.length % across + 1}`;
}

function renderSubjects() {
  const all = [...known.subjects.values()], have = [...at("subjects").querySelectorAll("button")];
  if (have.map((one) => one.dataset.id).join() !== all.map((one) => one.id).join())
    at("subjects").replaceChildren(...all.map((one) => {
      const button = element("button", {type: "button", "data-id": one.id});
      button.addEventListener("click", () => { known.chosen = one.id; render(); });
      return element("li", {}, button);
    }));
  at("subjects").querySelectorAll("button").forEach((button, n) => {
    const [sign, word] = LIGHTS[all[n].health[0].light], words = `${sign} ${all[n].name}${all[n].part ? " · " + all[n].part : ""}`;
    if (button.textContent !== words) button.textContent = words;
    button.setAttribute("aria-current", String(all[n].id === known.chosen));
    button.setAttribute("aria-label", `${all[n].name}${all[n].part ? ", " + all[n].part : ""}: ${word}`);
  });
}

/* The one that was looked at, which may know its verb by now; else one that has a verb. */
function choose() {
  if (known.subjects.has(known.chosen)) return;
  const all = [...known.subjects.values()], query = (known.chosen || "").split("/")[0];
  known.chosen = (all.find((one) => one.query === query) || all.find((one) => one.verb) || all[0] || {id: null}).id;
}

function render() {
  if (paused && known.drawn) return;
  choose();
  renderSubjects();
  const subject = known.subjects.get(known.chosen);
  if (subject) { renderHead(subject); renderFigures(subject); }
  else if (known.state) light("off", LIGHTS.off[1], "Waiting for a query …", "", "", "none");
  if (known.gone) renderGone();
  if (!known.state) return;
  const kind = subject && subject.verb ? subject.id + "/" + subject.interval + "/" + subject.series.backlog.some((one) => one !== null) : "standing";
  if (panelsFor !== kind) {
    panels.forEach((panel) => panel.chart && panel.chart.forget());
    panels = panelsOf(subject);
    panelsFor = kind;
    at("panels").replaceChildren(...panels.map((panel) => panel.section));
  }
  panels.forEach((panel) => panel.update(subject));
  known.drawn = true;
}

at("pause").addEventListener("click", () => {
  paused = !paused;
  at("pause").setAttribute("aria-pressed", String(paused));
  at("pause").textContent = paused ? "Continue" : "Pause";
  if (!paused) render();
});
function redraw() { panelsFor = null; if (known.state) { const was = paused; paused = false; render(); paused = was; } }
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
let resizing = null;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(redraw, 150); });

const saved = at("saved");
if (saved) {
  at("pause").hidden = true;
  at("link").textContent = "saved";
  text("saved-at", "Saved " + saved.dataset.at + ".");
  takeIn(JSON.parse(saved.textContent), true);
  render();
} else {
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && events) { events.close(); events = null; } else listen();
  });
  listen();
}
