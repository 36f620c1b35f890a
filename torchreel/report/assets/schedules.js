// Collectives in their order, and estimates of run times: of a compile, and of all ranks of a job.

const shortKernel = (name) => name.replace(/^torch\.ops\._?(c10d_functional\.)?/, "")
  .replace(/\.default$/, "");

function nanoseconds(value) {
  if (value < 1e3) return `${value.toFixed(0)} ns`;
  return value < 1e6 ? `${(value / 1e3).toFixed(1)} µs` : milliseconds(value / 1e6);
}

// The collectives of a graph; the one at a place is marked, where ranks part there.
const collectiveList = (collectives, marked) => el("ol",
  { class: "collectives", tabindex: 0, "aria-label": "Collectives" },
  collectives.map((name, at) => el("li", { class: at === marked ? "parted" : "", title: name },
    mono(shortKernel(name)))),
  marked != null && marked >= collectives.length ?
    el("li", { class: "parted" }, text("(no more)", "dim")) : "");

// -- a compile ------------------------------------------------------------------------------------

const SHOWN_ESTIMATES = 20;

function scheduleSections(details) {
  return listOf(details.schedules).flatMap((row) => {
    const where = row.partition ? ` of the ${row.partition}` : "";
    const collectives = listOf(row.collectives);
    return [collectives.length ? el("section", { class: "schedule" },
      el("h2", {}, `Collectives${where} (${collectives.length})`),
      listOf(row.differs).map((words) => el("p", { class: "note t" }, words)),
      collectiveList(collectives)) : "", estimates(listOf(row.estimates), where)];
  });
}

function estimates(rows, where) {
  if (!rows.length) return "";
  const sum = rows.reduce((total, row) => total + row.ns, 0);
  const longest = [...rows].sort((a, b) => b.ns - a.ns).slice(0, SHOWN_ESTIMATES);
  return el("section", { class: "estimates" },
    el("h2", {}, `Run time${where}, as Inductor estimates it: ${nanoseconds(sum)}`),
    el("table", { "aria-label": `Estimates${where}` },
      el("thead", {}, el("tr", {}, ["kernel", "kind", "time"].map((name) =>
        el("th", { scope: "col", class: name === "time" ? "num" : "" }, name)))),
      el("tbody", {}, longest.map((row) => el("tr", {}, el("td", {}, mono(shortKernel(row.name))),
        el("td", {}, text(row.kind, "dim")), el("td", { class: "num" }, nanoseconds(row.ns)))))),
    rows.length > longest.length ?
      el("p", { class: "dim" }, `and ${counted(rows.length - longest.length, "shorter one")}`) : "");
}

function exportSection(details) {
  const found = listOf(details.exports);
  return found.length ? el("section", { id: "exports" },
    el("h2", {}, `What the export ran into (${found.length})`),
    found.map((issue) => el("div", { class: "story" },
      el("div", {}, text(issue.kind, "dim"), "  ", text(issue.text),
        text(`  ${issue.event.replace(/^.*@/, "@")}`, "dim mono")),
      place(issue.line) || el("div", {}, text("no line of the program is known", "dim")),
      listOf(issue.values).length ?
        el("pre", { class: "t" }, issue.values.join("\n")) : ""))) : "";
}

// -- the ranks of a job ---------------------------------------------------------------------------

function rankSchedules(found) {
  const graphs = listOf(found.graphs);
  if (!graphs.length) return "";
  const parted = graphs.find((row) => row.parts_at != null);
  const told = parted ? `Collectives part at number ${parted.parts_at + 1} of ${graphName(parted)}` :
    "Collectives and estimates of each graph";
  return whenOpen(el("details", { open: Boolean(parted) || graphs.length <= 16, id: "schedules" },
    el("summary", {}, text(told, parted ? "failed" : ""))),
  () => el("table", { class: "sides", "aria-label": "Collectives of each graph" },
      el("thead", {}, el("tr", {}, ["graph", "ranks", "collectives", "estimated run time"].map(
        (name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, graphs.flatMap((row) => rankGraphRows(found, row)))));
}

const graphName = (row) => [row.compile, row.frame, row.partition].filter(Boolean).join(" ");

function rankGraphRows(found, row) {
  const sides = listOf(row.schedules);
  const shown = sides.length ? sides : [{ ranks: found.numbers, collectives: [] }];
  return shown.map((side, number) => el("tr", {},
    el("td", {}, number ? "" : text(graphName(row))),
    el("td", {}, text(spans(side.ranks)), " ", eventLink(side.event)),
    el("td", {}, collectiveList(listOf(side.collectives), row.parts_at)),
    el("td", {}, number ? "" : estimateRange(found, row))));
}

// The fastest and the slowest rank, where they differ.
function estimateRange(found, row) {
  const known = listOf(row.ns).map((ns, at) => ({ ns, rank: found.numbers[at] }))
    .filter(({ ns }) => ns != null).sort((a, b) => a.ns - b.ns);
  if (!known.length) return text("none", "dim");
  const [first, last] = [known[0], known.at(-1)];
  return text(first.ns === last.ns ? nanoseconds(first.ns) :
    `${nanoseconds(first.ns)} on rank ${first.rank}, ${nanoseconds(last.ns)} on rank ${last.rank}`);
}
