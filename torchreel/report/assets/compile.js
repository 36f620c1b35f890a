// One compile: what happened, its graphs and code side by side, guards, symbols, config.

const TABS = [
  ["", "Overview"], ["graphs", "Graphs and code"], ["guards", "Guards"], ["symbols", "Symbols"],
  ["config", "Config and environment"], ["records", "Records of torch"],
];

async function compileView(index, tab) {
  const row = report.compiles[index];
  const wide = tab === "graphs";
  const main = el("main", { id: "main", tabindex: -1, class: wide ? "wide" : "" },
    compileHead(row, index));
  const found = await detailsOf(index);
  if (!found) {
    const why = report.elsewhere ? "The details of this compile can't be read." :
      listOf(report.notes)[0] ?? "No details.";
    main.append(el("p", { class: "note t" }, why));
    return main;
  }
  const details = { graphs: [], ...found.details };
  const panel = el("div", { role: "tabpanel", id: "panel", "aria-labelledby": `tab-${tab}` });
  main.append(tabs(tab, details), panel);
  const show = { "": happened, graphs: graphsTab, guards: guardsTab, symbols: symbolsTab,
    config: configTab, records: recordsTab }[tab];
  panel.append(...[await show(details, row, found.part)].flat());
  return main;
}

function compileHead(row, index) {
  return el("div", { class: "head" },
    el("a", { href: "#/", id: "back" }, "← all compiles"),
    el("h1", { class: "mono t" }, row.address), statusOf(row), mono(row.frame || "?"),
    row.file ? text(`${shortFile(row.file)}:${row.line}`, "dim mono") : "",
    row.backend ? text(row.backend, "dim") : "",
    text(milliseconds(row.ms)),
    listOf(row.cache).length ? text(`cache: ${cacheOutcome(row)}`, "dim") : "",
    el("span", { class: "grow" }),
    index > 0 ? el("a", { href: `#/c/${index - 1}`, rel: "prev" }, "previous") : "",
    index < report.compiles.length - 1 ? el("a", { href: `#/c/${index + 1}`, rel: "next" }, "next") : "");
}

// By the number that the compile has by then: that of a page of a server may change.
function openTab(name) {
  const [, , index] = location.hash.split("/");
  location.hash = `#/c/${index}${name && "/"}${name}`;
}

function tabs(chosen, details) {
  const sizes = { graphs: details.graphs.length, guards: listOf(details.guards).length,
    symbols: listOf(details.symbols).length, records: listOf(details.records).length };
  const list = el("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the compile" },
    TABS.map(([name, label]) => el("button", {
      type: "button", role: "tab", id: `tab-${name}`, "aria-selected": String(name === chosen),
      "aria-controls": "panel", tabindex: name === chosen ? 0 : -1,
      onclick: () => openTab(name),
    }, label + (name in sizes ? ` ${sizes[name]}` : ""))));
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = TABS.findIndex(([name]) => name === chosen) + step;
    const next = TABS[(at + TABS.length) % TABS.length][0];
    focusAfter = `tab-${next}`;
    openTab(next);
  });
  return list;
}

// -- what happened --------------------------------------------------------------------------------

function happened(details, row) {
  const group = listOf(report.failures).find((each) =>
    each.compiles.includes(report.compiles.indexOf(row)));
  const section = (title, stories) => listOf(stories).length ?
    el("section", {}, el("h2", {}, `${title} (${stories.length})`), stories.map(story)) : "";
  return [
    listOf(details.notes).map((note) => el("p", { class: "note t" }, note)),
    group ? failureCard(group) : commandLine(details.next),
    details.caller ? el("div", {}, text("called from ", "dim"), place(details.caller)) : "",
    el("h2", {}, "Stages"), waterfall(details),
    exportSection(details),
    columns([section("Recompile: entries that could not be reused", details.recompiles),
      section("Graph breaks", details.breaks), madeStatic(listOf(details.specialised)),
      ...scheduleSections(details)],
    [boxed("Source", details.source), boxed("Traceback", details.traceback)]),
  ].flat();
}

// Two columns, or one where the other has nothing to say.
function columns(...sides) {
  const said = sides.map((side) => side.filter(Boolean)).filter((side) => side.length);
  return el("div", { class: "columns" }, said.map((side) => el("div", {}, side)));
}

const boxed = (title, words) => words ? el("section", {}, el("h2", {}, title),
  el("pre", { class: "box t", tabindex: 0 }, words)) : "";

// Sizes that were dynamic; the numbers of the model, which are constants from the start, are many.
function madeStatic(stories) {
  const isSize = (each) => /became|sizes of 0 and 1/.test(each.headline);
  const [sizes, numbers] = [stories.filter(isSize), stories.filter((each) => !isSize(each))];
  if (!stories.length) return "";
  return el("section", {}, el("h2", {}, `Made static (${stories.length})`), sizes.map(story),
    numbers.length ? el("details", {}, el("summary", {}, counted(numbers.length,
      "number of the program that is a constant", "numbers of the program that are constants")),
    numbers.map(story)) : "");
}

function waterfall(details) {
  const stages = listOf(details.stages);
  const ends = stages.map((stage) => stage.start_ms + (stage.ms ?? 0));
  const whole = Math.max(0.001, ...ends);
  return el("div", { class: "waterfall", role: "list", "aria-label": "Timeline of stages" },
    stages.flatMap((stage) => {
      const bar = el("i", { class: safeClass(stage.status) });
      bar.style.left = `${(100 * Math.max(0, stage.start_ms)) / whole}%`;
      bar.style.width = `${(100 * (stage.ms ?? whole - stage.start_ms)) / whole}%`;
      const name = [...new Set([stage.stage, stage.partition])].filter(Boolean).join(" ");
      const took = stage.ms == null ? "not left" : milliseconds(stage.ms);
      return [el("div", { role: "listitem" }, mono(name)),
        el("div", { class: "lane", "aria-hidden": "true" }, bar),
        el("div", { class: "num" }, took, stage.status === "ok" ? "" :
          el("span", { class: `status ${safeClass(stage.status)}` }, ` ${stage.status}`))];
    }));
}

function story(found) {
  return el("div", { class: "story" }, text(found.headline),
    listOf(found.code).length ? el("pre", { class: "box t failed" }, found.code.join("\n")) : "",
    listOf(found.steps).length ? el("ol", {}, found.steps.map(stepItem)) : "",
    listOf(found.notes).map((note) => el("div", { class: "notes t" }, note)));
}

const stepItem = (step) => el("li", {}, mono(step.text),
  text(`  ${step.event.replace(/^.*@/, "@")}`, "dim mono"),
  step.torch ? text(`  by ${step.torch}`, "dim") : "", place(step.line));

// -- guards, symbols, config ----------------------------------------------------------------------

function guardsTab(details) {
  const guards = listOf(details.guards);
  const rows = guards.map((guard) => {
    const code = listOf(guard.code).join("\n");
    const made = el("tr", {}, el("td", { class: "whole" }, mono(guard.type)),
      el("td", {}, el("pre", { class: "t" }, code || guard.expression || "")),
      el("td", {}, place(guard.line) || text("", "dim")),
      el("td", { class: "dim" }, mono(guard.torch ?? "")),
      el("td", { class: "dim" }, mono(guard.event.replace(/^.*@/, "@"))));
    made.words = `${guard.type} ${guard.expression} ${code} ${guard.line?.file} ` +
      `${guard.line?.code} ${guard.torch}`.toLowerCase();
    return made;
  });
  return filtered("Search the guards", rows, el("table", { "aria-label": "Guards" },
    el("thead", {}, el("tr", {}, ["type", "check", "for the line", "asked by", "event"].map((name) =>
      el("th", { scope: "col" }, name)))), el("tbody", {}, rows)));
}

function filtered(label, rows, table) {
  const told = el("span", { class: "dim", role: "status" }, String(rows.length));
  const box = el("input", { type: "search", placeholder: label, "aria-label": label, class: "find",
    oninput: () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        row.hidden = !words.every((word) => row.words.toLowerCase().includes(word));
        shown += !row.hidden;
      }
      told.textContent = words.length ? `${shown} of ${rows.length}` : String(rows.length);
    } });
  return [el("div", { class: "bar-row" }, box, told), table];
}

function symbolsTab(details) {
  const symbols = listOf(details.symbols);
  if (!symbols.length) return el("p", { class: "dim" }, "This compile has no symbols.");
  return [symbolHistory(listOf(details.moments)), symbols.map((symbol) =>
    el("details", { open: symbols.length <= 12 },
      el("summary", {}, mono(symbol.name), "  ", text(symbol.now), "  ",
        text(listOf(symbol.sources).join(", "), "dim mono")),
      el("div", { class: "story" }, el("ol", {}, listOf(symbol.steps).map(stepItem)))))].flat();
}

const STATE = ["name", "hint", "range", "replacement", "sources"];

// The table of symbols as it was after any event that changed it, chosen by a slider.
function symbolHistory(moments) {
  if (!moments.length) return "";
  const told = el("div", { role: "status", id: "moment" });
  const body = el("tbody", {});
  const slider = el("input", { type: "range", id: "moments", min: 0, max: moments.length - 1,
    value: moments.length - 1, "aria-label": "Event", oninput: () => show(Number(slider.value)) });
  const show = (at) => {
    const states = new Map();
    for (const moment of moments.slice(0, at + 1)) {
      for (const state of listOf(moment.changed)) states.set(state.name, state);
    }
    const { event, text: what, changed, guards, asserts } = moments[at];
    const now = new Set(listOf(changed).map((state) => state.name));
    body.replaceChildren(...[...states.values()].map((state) =>
      el("tr", { class: now.has(state.name) ? "changed" : "" }, STATE.map((name) =>
        el("td", {}, mono(state[name] ?? ""))))));
    told.replaceChildren(mono(`${at + 1} of ${moments.length}  ${event.replace(/^.*@/, "@")}  `),
      text(what), text(`  ${counted(guards ?? 0, "guard")}, ` +
        `${counted(asserts ?? 0, "assertion")} so far`, "dim"));
  };
  show(moments.length - 1);
  return el("section", { "aria-label": "Symbols over time" }, slider, told,
    el("table", { id: "states", "aria-label": "Symbols after the event" },
      el("thead", {}, el("tr", {}, STATE.map((name) => el("th", { scope: "col" }, name)))), body));
}

// What torch's own trace says beside graphs and code; a text is unpacked when it is opened.
function recordsTab(details, row, part) {
  const records = listOf(details.records);
  if (!records.length) return el("p", { class: "dim" }, "Torch wrote no other records.");
  const address = shellWord(`${report.store}#${row.address}`);
  return records.map((record) => {
    const made = el("details", { class: "record" }, el("summary", {}, mono(record.name),
      record.length ? text(` ${record.length.toLocaleString("en")} characters`, "dim") : ""));
    made.addEventListener("toggle", async () => {
      if (!made.open || made.querySelector("pre, p")) return;
      if (record.content == null) {
        made.append(el("p", { class: "note t" },
          `There is no room for it here: torchreel show ${address} --events`));
      } else {
        made.append(el("pre", { class: "box t", tabindex: 0 }, (await part(record.content)).text));
      }
    });
    return made;
  });
}

function configTab(details, row) {
  const recording = report.recordings.find((each) => each.id === row.recording);
  const config = listOf(details.config).map((entry) => [entry.name, entry.value]);
  const caches = listOf(details.caches).map((answer) => [answer.cache,
    [answer.outcome, answer.key, answer.reason].filter(Boolean).join("  ")]);
  return [
    config.length ? pairs("Config that is not the default", config, "h2") :
      el("p", { class: "dim" }, "All config is the default."),
    listOf(details.keys).length ? el("section", { id: "keys" }, el("h2", {}, "Cache keys"),
      details.keys.map(comparedKey)) : pairs("Caches", caches, "h2"), pairs("Environment", Object.entries(recording?.environment ?? {}), "h2"),
    pairs("Events", Object.entries(details.events ?? {}), "h2"),
  ];
}

// -- graphs and code, side by side ----------------------------------------------------------------

async function graphsTab(details, row, read) {
  const graphs = await Promise.all(details.graphs.map((at) => read(at.content)));
  const codes = (await Promise.all(listOf(details.code).map((at) => read(at.content))))
    .map((code) => code.text);
  if (!graphs.length) return el("p", { class: "dim" }, "No graph was recorded for this compile.");
  return new Workbench(details, graphs, codes, row).elements();
}

class Workbench {
  constructor(details, graphs, codes, row) {
    Object.assign(this, { details, graphs, codes, row });
    this.links = new Links(details, graphs, codes);
    const dynamo = Math.max(0, this.links.dynamo);
    const last = codes.length ? this.links.lowered(0) : graphs.length - 1;
    this.panes = [new ProgramPane(this), new GraphPane(this, dynamo, "Graph")];
    if (last !== dynamo && last >= 0) this.panes.push(new GraphPane(this, last, "Another graph"));
    if (codes.length) this.panes.push(new CodePane(this, 0));
    this.drawn = null;
    this.place = el("div", {});
    this.search = el("input", { type: "search", class: "find", id: "find-node",
      placeholder: "Search nodes and code", "aria-label": "Search nodes and code",
      oninput: () => this.find(), onkeydown: (event) => {
        if (event.key === "Enter") this.next(event.shiftKey ? -1 : 1);
      } });
    this.told = el("span", { class: "dim", role: "status", id: "told" });
  }

  elements() {
    const [known, all] = this.links.mapped();
    const panes = el("div", { class: "panes" }, this.panes.map((pane) => pane.element));
    const bar = this.bar(known, all);
    for (const each of [panes, bar, this.place]) {
      each.addEventListener("keydown", (event) => event.key === "Escape" && this.clear());
    }
    requestAnimationFrame(() => {
      for (const pane of this.panes) pane.begin();
      // After the panes were painted: a layout takes its time.
      const [, first, second] = this.panes;
      setTimeout(() => this.drawGraph((second instanceof GraphPane ? second : first).graph));
    });
    return [bar, panes, this.place];
  }

  bar(known, all) {
    const toggle = el("button", { type: "button", id: "draw", "aria-pressed": "true",
      onclick: () => {
        const hide = toggle.getAttribute("aria-pressed") === "true";
        toggle.setAttribute("aria-pressed", String(!hide));
        this.place.hidden = hide;
      } }, "Drawing");
    return el("div", { class: "bar-row" }, this.search, toggle, this.told,
      el("span", { class: "grow" }),
      all ? text(`${known} of ${counted(all, "kernel")} lead to a line of the program`, "dim") : "",
      text("Click a line to mark all that belongs to it; Esc clears.", "dim"));
  }

  drawGraph(graph) {
    if (this.drawn?.graph === graph) return;
    const drawing = new Drawing(this.graphs[graph], (node) => this.chooseNode(graph, node));
    this.drawn = { graph, drawing };
    this.place.replaceChildren(drawing.element);
    const hits = this.found?.nodes[graph];
    drawing.draw(hits ? [...hits][0] : undefined);
    drawing.begin();
    if (hits?.size) drawing.mark(hits);
  }

  chooseNode(graph, node, from) {
    this.drawGraph(graph);
    this.choose(this.links.ofNode(graph, node), from, { graph, node });
  }

  choose(found, from, chosen = {}) {
    this.found = found;
    for (const pane of this.panes) pane.mark(found, pane === from, chosen);
    const graph = this.drawn?.graph;
    if (graph !== undefined) {
      this.drawn.drawing.mark(found.nodes[graph], chosen.graph === graph ? chosen.node : undefined);
    }
    const kernels = found.kernels.reduce((total, set) => total + set.size, 0);
    const nodes = found.nodes.reduce((total, set) => total + set.size, 0);
    this.told.textContent = [counted(found.lines.size, "line"), counted(nodes, "node"),
      counted(kernels, "kernel")].join(", ");
  }

  clear() {
    this.found = null;
    this.search.value = "";
    for (const pane of this.panes) {
      pane.mark(this.links.empty(), true, {});
      pane.find("");
    }
    this.drawn?.drawing.mark(new Set());
    this.told.textContent = "";
  }

  find() {
    const query = this.search.value.trim().toLowerCase();
    this.matches = this.panes.flatMap((pane) => pane.find(query));
    this.current = -1;
    this.told.textContent = query ? counted(this.matches.length, "match", "matches") : "";
    const graph = this.drawn?.graph;
    if (graph === undefined) return;
    const nodes = this.graphs[graph].nodes;
    const matched = new Set(query ? [...nodes.keys()].filter((at) =>
      nodes[at].text.toLowerCase().includes(query)) : []);
    this.drawn.drawing.match(matched, [...matched][0]);
    if (this.matches.length) this.next(1);
  }

  next(step) {
    const size = this.matches?.length;
    if (!size) return;
    this.current = (this.current + step + size) % size;
    this.matches[this.current].scrollIntoView({ block: "center" });
    this.told.textContent = `${this.current + 1} of ${counted(size, "match", "matches")}`;
  }
}

// A pane is a list of rows; those that belong to something can be chosen.
class Pane {
  constructor(bench, label) {
    this.bench = bench;
    this.count = el("span", { class: "count" });
    this.list = el("div", { class: "list", role: "listbox", "aria-label": label, tabindex: -1 });
    this.list.addEventListener("click", (event) => this.act(event.target.closest(".can")));
    this.list.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        this.act(document.activeElement.closest(".can"));
      }
    });
    arrowKeys(this.list, ".can");
    this.element = el("section", { class: "pane", "aria-label": label },
      el("header", {}, this.title(label), this.count), this.list);
  }

  title(label) {
    return el("span", {}, label);
  }

  fill(rows) {
    this.rows = rows;
    this.list.replaceChildren(...rows.map((row) => row.element));
    const first = this.list.querySelector(".can");
    if (first) first.tabIndex = 0;
  }

  row(number, content, key, linked = true) {
    const element = el("div", { class: `row${key === undefined ? "" : " can"}${
      linked && key !== undefined ? " linked" : ""}`,
    ...(key === undefined ? {} : { role: "option", tabindex: -1, "aria-selected": "false" }) },
    el("span", { class: "n" }, number), el("span", { class: "t" }, content));
    element.item = key;
    return { element, key, words: content.toLowerCase() };
  }

  act(element) {
    if (!element) return;
    this.chosenRow = element;
    this.choose(element.item);
  }

  mark(found, own, chosen) {
    let first = null;
    let marked = 0;
    for (const { element, key } of this.rows) {
      const hit = key !== undefined && this.isHit(found, key);
      element.classList.toggle("hit", hit);
      const is = hit && (own ? element === this.chosenRow : this.isChosen(key, chosen));
      element.classList.toggle("chosen", is);
      if (key !== undefined) element.setAttribute("aria-selected", String(hit));
      marked += hit;
      first ??= hit ? element : null;
    }
    this.count.textContent = marked ? `${marked} marked` : "";
    if (first && !own) this.reveal(first);
  }

  reveal(element) {
    const top = element.offsetTop - this.list.offsetTop;
    this.list.scrollTo({ top: top - this.list.clientHeight / 3, left: 0 });
  }

  isChosen() {
    return false;
  }

  // Where the interesting part begins, once the pane has a size.
  begin() {}

  find(query) {
    const found = [];
    for (const row of this.rows) {
      const match = query !== "" && row.words.includes(query);
      row.element.classList.toggle("match", match);
      if (match) found.push(row.element);
    }
    return found;
  }
}

class ProgramPane extends Pane {
  constructor(bench) {
    super(bench, "Program");
    const files = new Map();
    const add = (file, line, code, key) => {
      if (!files.has(file)) files.set(file, new Map());
      const known = files.get(file).get(line);
      files.get(file).set(line, { code: known?.code || code, key: known?.key ?? key });
    };
    const { row, details } = bench;
    (details.source ?? "").split("\n").forEach((code, at) => {
      if (code.trim()) add(row.file, row.line + at, code);
    });
    for (const [key, line] of bench.links.lines) add(line.file, line.line, line.code ?? "", key);
    this.fill([...files].flatMap(([file, lines]) => [
      this.fileRow(file),
      ...[...lines].sort(([a], [b]) => a - b).map(([number, { code, key }]) =>
        this.row(number, code || " ", key)),
    ]));
  }

  fileRow(file) {
    return { element: el("div", { class: "row file", title: file },
      el("span", { class: "t" }, shortFile(file))), words: "" };
  }

  choose(key) {
    this.bench.choose(this.bench.links.ofLine(key), this);
  }

  isHit(found, key) {
    return found.lines.has(key);
  }
}

class GraphPane extends Pane {
  constructor(bench, graph, label) {
    super(bench, label);
    this.show(graph);
  }

  title(label) {
    const name = (at) => `${at.stage} ${at.partition ?? ""}`.trim();
    this.select = el("select", { "aria-label": label, onchange: () => {
      this.show(Number(this.select.value));
      this.bench.drawGraph(this.graph);
      if (this.bench.found) this.mark(this.bench.found, false, {});
    } }, this.bench.details.graphs.map((at, place) => el("option", { value: place },
      `${name(at)} (${counted(at.nodes, "node")})`)));
    return this.select;
  }

  show(graph) {
    this.graph = graph;
    this.select.value = String(graph);
    const { nodes, bodies } = this.bench.graphs[graph];
    const inner = Object.entries(bodies ?? {}).flatMap(([name, code]) =>
      ["", `${name}:`, ...code.split("\n").map((line) => `    ${line}`)]);
    const chains = this.bench.links.chains[graph];
    this.fill([...nodes.map((node, at) => this.row(at, node.text, at, chains[at].length > 0)),
      ...inner.map((line) => this.row("", line || " "))]);
  }

  begin() {
    const { nodes } = this.bench.graphs[this.graph];
    const first = nodes.findIndex((node) => node.op.startsWith("call"));
    if (first > 0) this.reveal(this.rows[first].element);
  }

  choose(node) {
    this.bench.chooseNode(this.graph, node, this);
  }

  isHit(found, node) {
    return found.nodes[this.graph].has(node);
  }

  isChosen(node, chosen) {
    return chosen.graph === this.graph && chosen.node === node;
  }
}

class CodePane extends Pane {
  constructor(bench, code) {
    super(bench, "Generated code");
    this.show(code);
  }

  title() {
    this.select = el("select", { "aria-label": "Generated code", onchange: () => {
      this.show(Number(this.select.value));
      if (this.bench.found) this.mark(this.bench.found, false, {});
    } }, this.bench.details.code.map((at, place) => el("option", { value: place },
      `code ${at.partition ?? ""} (${counted(listOf(at.kernels).length, "kernel")})`)));
    return this.select;
  }

  show(code) {
    this.code = code;
    this.select.value = String(code);
    const kernels = listOf(this.bench.details.code[code].kernels);
    const at = new Map();
    const add = (line, kernel) => at.set(line, [...(at.get(line) ?? []), kernel]);
    kernels.forEach((kernel, place) => {
      if (kernel.at) add(kernel.at, place);
      for (let line = kernel.source?.[0]; line <= kernel.source?.[1]; line += 1) add(line, place);
    });
    this.calls = new Set(kernels.map((kernel) => kernel.at));
    this.fill(this.bench.codes[code].split("\n").map((line, place) =>
      this.row(place + 1, line || " ", at.get(place + 1))));
  }

  begin() {
    const first = Math.min(...[...this.calls].filter(Boolean));
    if (Number.isFinite(first)) this.reveal(this.rows[first - 1].element);
  }

  choose(kernels) {
    this.bench.choose(this.bench.links.ofKernel(this.code, kernels), this);
  }

  isHit(found, kernels) {
    return kernels.some((kernel) => found.kernels[this.code].has(kernel));
  }

  // The call, not the source above it.
  mark(found, own, chosen) {
    super.mark(found, true, chosen);
    const hits = this.rows.map(({ element }) => element.classList.contains("hit"));
    const call = hits.findIndex((hit, at) => hit && this.calls.has(at + 1));
    const first = call >= 0 ? call : hits.indexOf(true);
    if (!own && first >= 0) this.reveal(this.rows[first].element);
  }
}
