// The first view: what went wrong, what was compiled again and why, and all compiles.

const view = { query: "", sort: "started", down: false, as: "table", libraries: false, status: "" };

function overview() {
  const list = el("div", { id: "compiles" });
  const main = el("main", { id: "main", tabindex: -1 },
    el("h1", { class: "unseen" }, `Compiles of ${report.store}`), stats(),
    listOf(report.notes).map((note) => el("p", { class: "note t", role: "status" }, note)),
    failures(), ranksSection(), causes(),
    el("h2", {}, "Compiles"), compileTools(list), list,
    recordings());
  return main;
}

function stats() {
  const compiles = report.compiles;
  const sum = (of) => compiles.reduce((total, row) => total + (of(row) ?? 0), 0);
  const answers = compiles.flatMap((row) => listOf(row.cache));
  const hits = answers.filter((answer) => answer.endsWith(" hit")).length;
  const failed = compiles.filter((row) => FAILING.has(row.status)).length;
  const stat = (value, noun) => el("span", {}, el("b", {}, value), ` ${noun}`);
  const many = (number, noun) => stat(number, number === 1 ? noun : `${noun}s`);
  return el("div", { class: "stats" },
    many(compiles.length, "compile"), stat(failed, "failed"),
    stat(compiles.filter((row) => row.status === "restarted").length, "restarted"),
    many(sum((row) => row.breaks), "graph break"),
    many(sum((row) => (row.misses ? 1 : 0)), "recompile"),
    stat(`${hits} of ${answers.length}`, "cache hits"),
    stat(milliseconds(sum((row) => row.ms)), "compiling"));
}

// -- failures -------------------------------------------------------------------------------------

function failures() {
  const groups = listOf(report.failures);
  if (!groups.length) return "";
  return el("section", { "aria-label": "Failures", id: "failures" },
    el("h2", {}, counted(groups.length, "distinct failure")), groups.map(failureCard));
}

function failureCard(group) {
  return el("article", { class: "card" },
    el("header", {}, text(group.type || group.kind, "type mono"),
      text(`${group.kind} in ${group.stage || "an unknown stage"}`),
      (group.count ?? 1) > 1 ? text(`${group.count} times`) : "",
      el("span", { class: "chips" }, group.compiles.slice(0, 30).map(compileLink)),
      group.signature ? text(`signature ${group.signature}`, "dim mono") : ""),
    group.message ? el("pre", { class: "message t", tabindex: 0 }, group.message) : "",
    place(group.line) || text("no line of the program is known", "dim"),
    group.node ? el("div", {}, text("Inductor failed at the node ", "dim"), mono(group.node)) : "",
    group.torch ? el("div", {}, text("in torch: ", "dim"), mono(group.torch)) : "",
    listOf(group.why).map(story),
    group.repro ? repro(group.repro) : "",
    commandLine(group.next));
}

function repro(found) {
  const told = `reduced from ${found.before} to ${found.after} (${found.status}), ` +
    `${counted(found.runs, "run")}; the smallest case failed the same way ` +
    `${counted(found.same, "time")}`;
  return el("details", { open: true }, el("summary", {}, told),
    el("pre", { class: "box t" }, found.text), commandLine(found.command));
}

const compileLink = (index) => el("a", { href: `#/c/${index}`, class: "mono t",
  "data-compile": report.compiles[index].address }, report.compiles[index].address);

// -- restarts, recompiles, graph breaks -----------------------------------------------------------

const SHOWN_CAUSES = 4;

function causes() {
  const found = listOf(report.causes);
  if (!found.length) return "";
  const kinds = [["recompile", "recompiles"], ["graph break", "graph breaks"],
    ["restart", "restarts"]];
  return el("section", { class: "causes", "aria-label": "Causes", id: "causes" },
    kinds.map(([kind, plural]) => {
      const rows = found.filter((row) => row.kind === kind);
      const times = timesOf(kind, rows);
      const several = rows.reduce((total, row) => total + (row.count ?? 1), 0) > times;
      return rows.length ? el("div", {},
        el("h2", {}, `${counted(times, kind, plural)}, ${counted(rows.length, "cause")}`),
        several ? el("p", { class: "dim" }, "A recompile counts under each cause for which an " +
          "entry of the cache was not reused.") : "",
        rows.slice(0, SHOWN_CAUSES).map(cause),
        rows.length > SHOWN_CAUSES ? el("details", { class: "cause" },
          el("summary", {}, el("span", {}), text(`${rows.length - SHOWN_CAUSES} more`, "dim")),
          rows.slice(SHOWN_CAUSES).map(cause)) : "") : "";
    }));
}

// How often it happened: a recompile that has several causes happened once.
function timesOf(kind, rows) {
  if (kind === "recompile") return new Set(rows.flatMap((row) => row.compiles)).size;
  return rows.reduce((total, row) => total + (row.count ?? 1), 0);
}

function cause(row) {
  return el("details", { class: "cause" },
    el("summary", {}, el("span", { class: "num dim" }, `${row.count ?? 1}×`),
      el("span", {}, mono(row.what), place(row.line))),
    el("div", { class: "body" }, row.reason ? el("pre", { class: "t" }, row.reason) : "",
      el("div", { class: "chips" }, row.compiles.slice(0, 100).map(compileLink))));
}

// -- compiles -------------------------------------------------------------------------------------

function compileTools(list) {
  const redraw = () => drawCompiles(list);
  const mode = (name, label) => el("button", {
    type: "button", id: `as-${name}`, "aria-pressed": String(view.as === name),
    onclick: () => {
      view.as = name;
      for (const each of ["table", "tree"]) {
        document.getElementById(`as-${each}`).setAttribute("aria-pressed", String(each === name));
      }
      redraw();
    },
  }, label);
  const statuses = [...new Set(report.compiles.map((row) => row.status))].sort();
  const status = el("select", { "aria-label": "Status", onchange: (event) => {
    view.status = event.target.value;
    redraw();
  } }, el("option", { value: "" }, "every status"),
    statuses.map((name) => el("option", { value: name, selected: view.status === name }, name)));
  const libraries = el("input", { type: "checkbox", checked: view.libraries,
    onchange: (event) => {
      view.libraries = event.target.checked;
      redraw();
    } });
  return el("div", { class: "bar-row" }, mode("table", "Table"), mode("tree", "By stack"), status,
    el("label", {}, libraries, " library frames"),
    el("span", { id: "found", class: "dim", role: "status" }));
}

function wanted() {
  const words = view.query.toLowerCase().split(/\s+/).filter(Boolean);
  return report.compiles.map((row, index) => ({ row, index })).filter(({ row }) => {
    if (view.status && row.status !== view.status) return false;
    const all = `${row.address} ${row.frame} ${row.file}:${row.line} ${row.status} ` +
      `${row.backend ?? ""} ${row.stage ?? ""} ${listOf(row.cache).join(" ")}`.toLowerCase();
    return words.every((word) => all.toLowerCase().includes(word));
  });
}

function drawCompiles(list) {
  const found = wanted();
  const told = document.getElementById("found");
  const message = found.length === report.compiles.length ? "" :
    `${found.length} of ${report.compiles.length}`;
  if (told) told.textContent = message;
  list.replaceChildren(view.as === "table" ? compileTable(found, list) : compileTree(found));
}

const COLUMNS = [
  ["address", "compile", (row) => row.address],
  ["status", "status", (row) => row.status],
  ["frame", "frame", (row) => row.frame],
  ["started", "started", (row) => [row.recording, row.started_ms ?? 0], "num"],
  ["ms", "time", (row) => row.ms ?? -1, "num"],
  ["nodes", "call nodes", (row) => row.call_nodes ?? -1, "num"],
  ["guards", "guards", (row) => row.guards ?? 0, "num"],
  ["breaks", "breaks", (row) => row.breaks ?? 0, "num"],
  ["misses", "misses", (row) => row.misses ?? 0, "num"],
  ["cache", "cache", (row) => listOf(row.cache).join()],
  ["backend", "backend", (row) => row.backend ?? ""],
];

function compileTable(found, list) {
  const key = COLUMNS.find(([name]) => name === view.sort)[2];
  const sorted = [...found].sort((a, b) => compared(key(a.row), key(b.row)));
  if (view.down) sorted.reverse();
  const longest = report.compiles.reduce((most, row) => Math.max(most, row.ms ?? 0), 1);
  const heads = COLUMNS.map(([name, label, , kind]) => {
    const sort = view.sort !== name ? "none" : view.down ? "descending" : "ascending";
    const mark = { none: "", ascending: " ▲", descending: " ▼" }[sort];
    return el("th", { class: kind, "aria-sort": sort, scope: "col" },
      el("button", { type: "button", "data-sort": name, onclick: () => {
        view.down = view.sort === name ? !view.down : kind === "num" && name !== "started";
        view.sort = name;
        drawCompiles(list);
        list.querySelector(`[data-sort=${name}]`).focus();
      } }, label + mark));
  });
  const body = el("tbody", {});
  const table = el("div", {}, el("table", { "aria-label": "Compiles" },
    el("thead", {}, el("tr", {}, heads)), body));
  appendInSteps(body, sorted, ({ row, index }) => compileRow(row, index, longest), table);
  arrowKeys(body, "a.open");
  return table;
}

const collator = new Intl.Collator("en", { numeric: true });

function compared(a, b) {
  if (Array.isArray(a)) return a[0] - b[0] || a[1] - b[1];
  if (typeof a === "number") return a - b;
  return collator.compare(a, b);
}

function compileRow(row, index, longest) {
  const meter = el("span", { class: "meter", "aria-hidden": "true" });
  meter.style.width = `${(60 * (row.ms ?? 0)) / longest}px`;
  return el("tr", {},
    el("td", {}, el("a", { href: `#/c/${index}`, class: "open mono t" }, row.address)),
    el("td", {}, statusOf(row)),
    el("td", { class: "frame" }, mono(row.frame || "?"),
      row.file ? text(`  ${shortFile(row.file)}:${row.line}`, "dim") : ""),
    el("td", { class: "num dim" }, milliseconds(row.started_ms ?? 0)),
    el("td", { class: "num" }, meter, milliseconds(row.ms)),
    el("td", { class: "num" }, row.call_nodes ?? ""),
    el("td", { class: "num" }, row.guards || ""),
    el("td", { class: "num" }, row.breaks || ""),
    el("td", { class: "num" }, row.misses || ""),
    el("td", {}, text(cacheOutcome(row))),
    el("td", {}, text(row.backend ?? "", "dim")));
}

const statusOf = (row) => el("span", { class: `status ${safeClass(row.status)}` },
  row.status + (row.stage ? ` in ${row.stage}` : ""));
const safeClass = (name) => (/^[a-z_]+$/.test(name) ? name : "");

function cacheOutcome(row) {
  const outcomes = listOf(row.cache).map((answer) => answer.split(" ").pop());
  return [...new Set(outcomes)].map((name) => {
    const times = outcomes.filter((each) => each === name).length;
    return times > 1 ? `${name} ×${times}` : name;
  }).join(", ");
}

// -- the tree of the user's stack -----------------------------------------------------------------

const FEWEST_LEAVES = 20;

function compileTree(found) {
  const root = { children: new Map(), leaves: [] };
  const known = new Map();
  for (const { row, index } of found) treeNode(root, row.stack, known).leaves.push({ row, index });
  const list = el("ul", { class: "tree" });
  // Together, the branches begin with as many leaves as a table has rows.
  const each = Math.max(FEWEST_LEAVES, Math.floor(AT_ONCE / (known.size + 1)));
  appendBranches(list, root, each);
  return list;
}

// The branch of a frame: the one above it where it is hidden. `known` has those that were found.
function treeNode(root, stack, known) {
  if (stack == null) return root;
  if (known.has(stack)) return known.get(stack);
  const frame = report.frames[stack];
  const above = treeNode(root, frame.parent, known);
  const own = frame.library && !view.libraries ? above : { children: new Map(), leaves: [] };
  if (own !== above) above.children.set(stack, own);
  known.set(stack, own);
  return own;
}

function appendBranches(list, node, size) {
  const leaves = el("ul", { class: "leaves" });
  if (node.leaves.length) list.append(el("li", {}, leaves));
  appendInSteps(leaves, node.leaves, leaf, list, size);
  for (const [stack, child] of node.children) {
    const frame = report.frames[stack];
    const below = el("ul", {});
    appendBranches(below, child, size);
    list.append(el("li", {}, el("details", { open: true },
      el("summary", { class: frame.library ? "dim" : "" }, mono(frame.function),
        text(`  ${shortFile(frame.file)}:${frame.line}`, "dim")), below)));
  }
}

const leaf = ({ row, index }) => el("li", { class: "leaf" },
  el("a", { href: `#/c/${index}`, class: "open mono t" }, row.address), statusOf(row),
  mono(row.frame || "?"), text(milliseconds(row.ms), "dim"),
  text(row.call_nodes == null ? "" : counted(row.call_nodes, "call node"), "dim"),
  text(cacheOutcome(row), "dim"));

// -- recordings -----------------------------------------------------------------------------------

function recordings() {
  return el("section", { "aria-label": "Recordings" }, el("h2", {}, "Recordings"),
    report.recordings.map((row) => el("details", {},
      el("summary", {}, mono(`#${row.id}`), text(` ${row.kind}, ${row.status}, ${row.started}  `),
        row.rank == null ? "" : text(`rank ${row.rank} `), mono(row.program)),
      listOf(row.lost).length ? pairs("Lost", row.lost.map((item) =>
        [`${item.count} × ${item.place} (${item.reason})`, item.message])) : "",
      pairs("Environment", Object.entries(row.environment ?? {})))));
}

function pairs(title, rows, level = "h3") {
  if (!rows.length) return "";
  return el("div", {}, el(level, {}, title), el("table", {}, el("tbody", {},
    rows.map(([name, value]) => el("tr", {}, el("td", {}, mono(name)),
      el("td", {}, mono(value)))))));
}
