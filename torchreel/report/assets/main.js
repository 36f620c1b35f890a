// Which view is shown, by the address after '#'; the bar on top; keys that work everywhere.

let focusAfter = "";
let shown = 0;
let drawn = 0;

const app = document.getElementById("app");

function topBar() {
  const search = el("input", { type: "search", id: "search", value: view.query,
    placeholder: "Search compiles  ( / )", "aria-label": "Search compiles",
    oninput: () => {
      view.query = search.value;
      const list = document.getElementById("compiles");
      if (list) drawCompiles(list);
      else location.hash = "#/";
    } });
  return el("header", { class: "top" },
    el("a", { class: "skip", href: "#main", onclick: (event) => {
      event.preventDefault();
      document.getElementById("main").focus();
    } }, "to the content"),
    el("a", { class: "brand", href: "#/" }, "torchreel"),
    el("span", { class: "mono t" }, report.store), el("span", { class: "grow" }),
    text(`torchreel ${report.version}`, "dim"), isComparison ? "" : search);
}

// In a page of a server, the number of a compile changes when a recording before it gets one more.
// An entry of the history remembers which compile it is, and is given the number that this has now.
function renumber() {
  const [, kind, number, tab = ""] = location.hash.split("/");
  if (kind !== "c" || report.elsewhere !== "server") return;
  const known = history.state?.compile;
  const index = known === undefined ? Number(number) : numberOf(known);
  const compile = report.compiles[index]?.address;
  history.replaceState({ compile }, "", compile ? `#/c/${index}${tab && "/"}${tab}` : "#/");
}

const numberOf = (compile) => report.compiles.findIndex((row) => row.address === compile);

async function route() {
  const turn = (shown += 1);
  renumber();
  const [, kind, number, tab = ""] = location.hash.split("/");
  const index = Number(number);
  const isCompile = kind === "c" && Number.isInteger(index) && report.compiles?.[index];
  const known = TABS.some(([name]) => name === tab) ? tab : "";
  const isPair = kind === "p" && isComparison && report.pairs[index];
  const main = isPair ? await pairView(index) : isComparison ? comparisonOverview() :
    isCompile ? await compileView(index, known) : overview();
  if (turn !== shown) return;
  main.addEventListener("keydown", arrows);
  app.querySelector("main")?.remove();
  app.append(main);
  drawn = turn;
  if (!isCompile && !isComparison) drawCompiles(document.getElementById("compiles"));
  scrollTo(0, 0);
  const focused = focusAfter && document.getElementById(focusAfter);
  focusAfter = "";
  if (focused) focused.focus();
}

// Escape empties a search box, and leaves the page from anywhere else.
function arrows(event) {
  if (event.key !== "Escape" || location.hash.endsWith("graphs")) return;
  const box = event.target.closest("input[type=search]");
  if (!box?.value) {
    location.hash = "#/";
    return;
  }
  event.preventDefault();
  box.value = "";
  box.dispatchEvent(new Event("input"));
}

document.addEventListener("keydown", (event) => {
  const typing = /^(input|select|textarea)$/i.test(event.target.tagName);
  if (event.key === "/" && !typing) {
    event.preventDefault();
    (document.querySelector("main .find") ?? document.getElementById("search"))?.focus();
  }
});

app.append(topBar());
addEventListener("hashchange", route);
route();
