// Two recordings side by side: which compiles differ, in what, and where they part first.

const isComparison = report.pairs !== undefined;

function comparisonOverview() {
  const pairs = report.pairs;
  const differing = pairs.filter((pair) => listOf(pair.differing).length);
  const stat = (value, noun) => el("span", {}, el("b", {}, value), ` ${noun}`);
  return el("main", { id: "main", tabindex: -1 },
    el("h1", { class: "unseen" }, report.store), el("div", { class: "stats" },
      stat(pairs.length - differing.length, "pairs of compiles match"),
      stat(differing.length, "differ"),
      stat(listOf(report.only_left).length, "only on the left"),
      stat(listOf(report.only_right).length, "only on the right")),
    el("p", {}, text("left ", "dim"), mono(report.sides[0]), text("  right ", "dim"),
      mono(report.sides[1])),
    listOf(report.notes).map((note) => el("p", { class: "note t", role: "status" }, note)),
    el("h2", {}, "Compiles"), pairTable(pairs),
    loneList("Only on the left", report.only_left),
    loneList("Only on the right", report.only_right),
    el("h2", {}, "Environments"), report.recordings.map(environmentOf));
}

function pairTable(pairs) {
  const heads = ["left", "right", "frame", "status", "time", "differs in", "first event that parts"];
  // Those that differ first, each in its own order.
  const order = [...pairs.keys()].sort((a, b) =>
    !listOf(pairs[a].differing).length - !listOf(pairs[b].differing).length || a - b);
  const body = el("tbody", {}, order.map((at) => pairRow(pairs[at], at)));
  arrowKeys(body, "a.open");
  return el("table", { "aria-label": "Pairs of compiles", id: "pairs" },
    el("thead", {}, el("tr", {}, heads.map((name) => el("th", { scope: "col" }, name)))), body);
}

function pairRow(pair, at) {
  const [left, right] = pair.statuses;
  const times = listOf(pair.ms).map(milliseconds).filter(Boolean).join(" → ");
  const differing = listOf(pair.differing);
  return el("tr", {},
    el("td", {}, el("a", { href: `#/p/${at}`, class: "open mono t" }, pair.left)),
    el("td", {}, mono(pair.right)),
    el("td", { class: "frame" }, mono(pair.frame || "?"),
      pair.file ? text(`  ${shortFile(pair.file)}:${pair.line}`, "dim") : ""),
    el("td", {}, text(left === right ? left : `${left} → ${right}`)),
    el("td", { class: "num" }, times),
    el("td", {}, text(differing.join(", ") || "nothing", differing.length ? "" : "dim")),
    el("td", {}, pair.first ? firstEvent(pair.first) : ""));
}

// The name of the event, and the first lines of it that are not the same.
function firstEvent(first) {
  const [left, right] = [first.left, first.right].map((value) => (value ?? "").split("\n"));
  const at = Math.max(0, left.findIndex((line, number) => line !== right[number]));
  const line = (lines) => (lines[at] ?? "").slice(0, 120) || "(nothing)";
  return el("div", {}, at ? text(`${left[0].slice(0, 60)}  `, "dim mono") : "", mono(line(left)),
    text(" / ", "dim"), mono(line(right)));
}

function loneList(title, rows) {
  if (!listOf(rows).length) return "";
  return el("section", {}, el("h2", {}, title), el("ul", {}, rows.map((row) =>
    el("li", {}, mono(row.address), "  ", text(row.frame ?? ""), "  ",
      text(row.status ?? "", "dim")))));
}

function environmentOf(pair) {
  const places = listOf(pair.layer.places);
  return el("details", { open: places.length > 0 && places.length <= 12 },
    el("summary", {}, mono(pair.left), text(" and ", "dim"), mono(pair.right),
      text(`  ${counted(pair.layer.differences ?? 0, "difference")}`, "dim")),
    listOf(pair.notes).map((note) => el("p", { class: "note t" }, note)),
    places.length ? placesTable("Environment", places) : "");
}

function placesTable(label, places) {
  return el("table", { "aria-label": label, class: "sides" },
    el("thead", {}, el("tr", {}, ["where", "left", "right"].map((name) =>
      el("th", { scope: "col" }, name)))),
    el("tbody", {}, places.map((each) => el("tr", {}, el("td", {}, mono(each.what)),
      sideCell(each.left, each.left_at), sideCell(each.right, each.right_at)))));
}

const sideCell = (value, at) => el("td", {}, value ? el("pre", { class: "t" }, value) :
  text("(nothing)", "dim"), at ? text(`@${at.split("@").pop()}`, "dim mono") : "");

// -- two compiles ---------------------------------------------------------------------------------

async function pairView(index) {
  const pair = report.pairs[index];
  const main = el("main", { id: "main", tabindex: -1, class: "wide" }, pairHead(pair, index));
  if (pair.details == null) {
    main.append(el("p", { class: "note t" }, listOf(report.notes)[0] ?? "No details."));
    return main;
  }
  const details = await part(pair.details);
  main.append(...[
    listOf(details.notes).map((note) => el("p", { class: "note t" }, note)),
    layersTable(listOf(details.layers)),
    listOf(details.keys).length ? el("section", { id: "keys" }, el("h2", {}, "Cache keys"),
      details.keys.map(comparedKey)) : "",
    listOf(details.layers).filter((layer) => listOf(layer.places).length).map(layerSection),
    listOf(details.texts).map(comparedText),
  ].flat().filter(Boolean));
  return main;
}

function pairHead(pair, index) {
  const next = (at, label, rel) => (report.pairs[at] ?
    el("a", { href: `#/p/${at}`, rel }, label) : "");
  return el("div", { class: "head" }, el("a", { href: "#/", id: "back" }, "← all pairs"),
    el("h1", { class: "mono t" }, `${pair.left} and ${pair.right}`), mono(pair.frame || "?"),
    text(listOf(pair.differing).length ? `differ in ${pair.differing.join(", ")}` : "match"),
    el("span", { class: "grow" }), next(index - 1, "previous", "prev"),
    next(index + 1, "next", "next"));
}

function layersTable(layers) {
  return el("table", { "aria-label": "Layers", id: "layers" },
    el("thead", {}, el("tr", {}, ["layer", "left", "right", "differences", "note"].map((name) =>
      el("th", { scope: "col" }, name)))),
    el("tbody", {}, layers.map((layer) => el("tr", {}, el("td", {}, text(layer.layer)),
      el("td", {}, String(layer.left)), el("td", {}, String(layer.right)),
      el("td", {}, layer.left || layer.right ? String(layer.differences ?? 0) : ""),
      el("td", {}, text(layer.note ?? "", "dim"))))));
}

function layerSection(layer) {
  const more = (layer.differences ?? 0) - layer.places.length;
  return el("section", {}, el("h2", {}, `${layer.layer}: ${counted(layer.differences, "difference")}`),
    listOf(layer.places[0].before).length ? el("p", {}, text("before it: ", "dim"),
      mono(layer.places[0].before.join(", "))) : "",
    placesTable(layer.layer, layer.places),
    more > 0 ? el("p", { class: "dim" }, `and ${more} more`) : "");
}

function comparedKey(key) {
  const factors = listOf(key.factors);
  const of = key.of ? ` of ${counted(key.of, "factor")}` : "";
  return el("div", { class: "story" },
    el("div", {}, mono(key.cache), text(` ${key.outcome}`),
      key.nearest ? text(`; nearest ${key.nearest}, a ${key.nearest_outcome}`, "dim") :
        text("; no other lookup to hold it against", "dim")),
    key.verdict ? el("div", {}, text(key.verdict)) : "",
    factors.length ? el("details", { open: factors.length <= 4 },
      el("summary", {}, key.of ? `${factors.length}${of} differ` :
        "torch does not write the factors of this key; of what is recorded, these differ"),
      placesTable("Factors", factors.map((each) =>
        ({ what: each.name, left: each.left, right: each.right })))) : "");
}

function comparedText(found) {
  return el("section", {}, el("h2", {}, `${found.name}: ${counted(found.differing, "line")} differ`),
    el("table", { class: "sides lines mono", "aria-label": found.name },
      el("thead", {}, el("tr", {}, ["left", "right"].map((name) =>
        el("th", { scope: "col" }, name)))),
      el("tbody", {}, found.rows.map((row) => (row.skipped ?
        el("tr", { class: "skipped" }, el("td", { colspan: 2 },
          `${counted(row.skipped, "line")} alike`)) :
        el("tr", { class: row.same ? "" : "parted" }, lineCell(row.left), lineCell(row.right)))))));
}

const lineCell = (value) => el("td", { class: value == null ? "absent" : "" },
  value == null ? "" : el("pre", { class: "t" }, value || " "));
