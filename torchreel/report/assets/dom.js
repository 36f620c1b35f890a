// Elements. Text is always text: nothing here, or anywhere else, makes markup of a string.

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  return filled(made, attributes, children);
}

function svg(tag, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child != null && child !== ""));
  return made;
}

const text = (value, kind = "") => el("span", { class: `t ${kind}` }, String(value));
const mono = (value) => text(value, "mono");

function milliseconds(value) {
  if (value == null) return "";
  if (value < 10) return `${value.toFixed(1)} ms`;
  if (value < 1000) return `${value.toFixed(0)} ms`;
  if (value < 100000) return `${(value / 1000).toFixed(1)} s`;
  const seconds = Math.round(value / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

const counted = (number, noun, plural = `${noun}s`) =>
  `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;

function shortFile(file) {
  const parts = file.split("/site-packages/");
  return parts.length > 1 ? parts[parts.length - 1] : file;
}

function place(line) {
  if (!line) return "";
  const where = `${shortFile(line.file)}:${line.line}`;
  const inside = line.function ? ` in ${line.function}` : "";
  return el("div", { class: "place", title: line.file },
    text(where + inside, "dim"), line.code ? text(`    ${line.code}`, "text") : "");
}

// As torchreel/escaping/shell.py quotes it.
const shellWord = (word) =>
  /^[\w@%+=:,./#-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\"'\"'")}'`;

function commandLine(words) {
  if (!words) return "";
  const button = el("button", { type: "button", onclick: () => copy(words, button) }, "copy");
  return el("div", { class: "command" }, text("next", "dim"), el("code", { class: "t" }, words),
    button);
}

async function copy(words, button) {
  try {
    await navigator.clipboard.writeText(words);
    button.textContent = "copied";
  } catch {
    getSelection().selectAllChildren(button.previousSibling);
    button.textContent = "selected";
  }
}

const AT_ONCE = 500;

// Append what `make` makes of rows, some hundred at a time: the next ones when the end comes into
// view or is chosen. A page of 64,000 rows takes minutes to lay out.
function appendInSteps(list, rows, make, below = list, size = AT_ONCE) {
  let at = 0;
  const end = el("button", { type: "button", class: "more", onclick: () => step() });
  const seen = new IntersectionObserver((found) => found.some((each) => each.isIntersecting) &&
    step());
  const step = () => {
    list.append(...rows.slice(at, at + size).map(make));
    at += size;
    if (at < rows.length) {
      end.textContent = `${(rows.length - at).toLocaleString("en")} more`;
    } else {
      seen.disconnect();
      end.remove();
    }
  };
  step();
  if (at < rows.length) {
    below.append(end);
    seen.observe(end);
  }
}

// What is made when an element is opened, for what is long and not looked at.
function whenOpen(details, make) {
  const fill = () => {
    if (!details.open || details.dataset.filled) return;
    details.dataset.filled = "yes";
    details.append(make());
  };
  details.addEventListener("toggle", fill);
  fill();
  return details;
}

// One item in a list has the focus; the arrow keys move it.
function arrowKeys(list, selector) {
  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key];
    const to = { Home: 0, End: -1 }[event.key];
    if (step === undefined && to === undefined) return;
    const items = [...list.querySelectorAll(selector)].filter((item) => !item.hidden);
    const here = items.indexOf(document.activeElement.closest(selector));
    const next = to === undefined ? Math.max(0, Math.min(items.length - 1, here + step)) : to;
    const item = items.at(next);
    if (!item) return;
    event.preventDefault();
    for (const each of items) if (each.tabIndex === 0) each.tabIndex = -1;
    item.tabIndex = 0;
    item.focus();
  });
}
