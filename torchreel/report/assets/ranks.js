// The ranks of a job side by side: what each compiled, and the first decision in which they part.

const SHOWN_COMPILES = 200;

function ranksSection() {
  const found = report.ranks;
  if (!found) return "";
  const same = `${counted(found.compiles, "compile")} and ` +
    `${counted(found.decisions, "decision")} alike`;
  return el("section", { "aria-label": "Ranks", id: "ranks" },
    el("h2", {}, `${found.recordings.length} ranks `, found.what ?
      `part at a ${found.what}, after ${same}` : `agree: ${same}`),
    found.what ? el("div", { class: "card" },
      found.before ? el("div", {}, text("before it: ", "dim"), mono(found.before)) : "",
      el("table", { class: "sides", "aria-label": "Where the ranks part" },
        el("thead", {}, el("tr", {}, ["ranks", "what they have", "event"].map((name) =>
          el("th", { scope: "col" }, name)))),
        el("tbody", {}, listOf(found.views).map((view) => el("tr", {},
          el("td", {}, text(spans(view.ranks))), el("td", {}, el("pre", { class: "t" }, view.text)),
          el("td", {}, eventLink(view.event))))))) : "",
    rankSchedules(found),
    whenOpen(el("details", { open: found.recordings.length <= 16 },
      el("summary", {}, "Compiles of each rank")), () => rankGrid(found)));
}

// 0, 1, 2, 5 as 0-2, 5.
function spans(numbers) {
  const runs = [];
  for (const number of numbers) {
    const last = runs.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([from, to]) => (from === to ? String(from) : `${from}-${to}`)).join(", ");
}

function eventLink(event) {
  if (!event) return "";
  const index = placeOf(event.slice(1).split("@")[0]);
  return index < 0 ? mono(event) : el("a", { href: `#/c/${index}`, class: "mono t" }, event);
}

// The place of the compile with an address; -1 for none. A live page gets other compiles.
let places = { of: null, known: new Map() };

function placeOf(address) {
  if (places.of !== report.compiles) {
    const known = new Map(report.compiles.map((row, at) => [row.address, at]));
    places = { of: report.compiles, known };
  }
  return places.known.get(address) ?? -1;
}

function rankGrid(found) {
  const of = new Map(found.recordings.map((id) => [id, []]));
  for (const [at, row] of report.compiles.entries()) of.get(row.recording)?.push(at);
  const rows = found.recordings.map((id) => of.get(id));
  const widest = Math.min(SHOWN_COMPILES, Math.max(...rows.map((row) => row.length)));
  const most = rows.map((row) => report.compiles[row[0]]?.frame);
  const commonest = (at) => {
    const times = new Map();
    for (const row of rows) {
      const name = report.compiles[row[at]]?.frame;
      times.set(name, (times.get(name) ?? 0) + 1);
    }
    return [...times].sort((a, b) => b[1] - a[1])[0]?.[0] ?? most[0];
  };
  const common = [...Array(widest).keys()].map(commonest);
  return el("table", { class: "grid", "aria-label": "Compiles of each rank" },
    el("thead", {}, el("tr", {}, ["rank", "recording", "compiling", "compiles"].map((name) =>
      el("th", { scope: "col" }, name)))),
    el("tbody", {}, found.recordings.map((id, place) => {
      const recording = report.recordings.find((each) => each.id === id);
      const time = rows[place].reduce((total, at) => total + (report.compiles[at].ms ?? 0), 0);
      return el("tr", {}, el("td", { class: "num" }, String(recording?.rank ?? "?")),
        el("td", {}, mono(`#${id}`)), el("td", { class: "num" }, milliseconds(time)),
        el("td", { class: "cells" }, rows[place].slice(0, widest).map((at, number) =>
          rankCell(at, common[number]))));
    })));
}

function rankCell(at, common) {
  const row = report.compiles[at];
  const name = `${row.address} ${row.frame} ${row.status}`;
  const other = row.frame === common ? "" : " other";
  return el("a", { href: `#/c/${at}`, class: `cell ${safeClass(row.status)}${other}`, title: name,
    "aria-label": name });
}
