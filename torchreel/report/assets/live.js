// The page of a server: it asks for changes of the store, and says when its server is gone.

const EVERY_MS = 2000;
let revision = document.body.dataset.revision;
let seen = new Date();

async function askServer() {
  try {
    const state = await fetched("state");
    if (state.revision !== revision) {
      const found = await fetched("document");
      revision = found.revision;
      report = found.document;
      seen = new Date();
      files.clear();
      await showChange();
    }
    tell(state.error ? `The store can't be read now: ${state.error}` : "");
  } catch {
    tell("The server of this page is gone: start it again with 'torchreel serve'. What is shown " +
      `is from ${seen.toLocaleTimeString()}.`);
  }
  setTimeout(askServer, EVERY_MS);
}

async function fetched(name) {
  const answer = await fetch(name, { cache: "no-store" });
  if (!answer.ok) throw new Error(answer.status);
  return answer.json();
}

// What one reads in a compile stays as it is, but for links; a list is drawn anew where one was.
async function showChange() {
  renumber();
  if (location.hash.startsWith("#/c/") && drawn === shown) return relink();
  const at = scrollY;
  await route();
  scrollTo(0, at);
}

function relink() {
  for (const link of app.querySelectorAll("main [data-compile]")) {
    link.href = `#/c/${numberOf(link.dataset.compile)}`;
  }
  const index = numberOf(history.state.compile);
  app.querySelector("main .head").replaceWith(compileHead(report.compiles[index], index));
}

function tell(message) {
  const box = document.getElementById("live");
  box.textContent = message;
  box.hidden = !message;
}

if (revision) {
  app.querySelector("header").after(el("p", { class: "note t", id: "live", role: "status",
    hidden: true }));
  setTimeout(askServer, EVERY_MS);
}
