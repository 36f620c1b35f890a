"use strict";
// The document of the report (docs/report.md), and its packed parts, each read when it is needed.

let report = JSON.parse(document.getElementById("report").textContent);
const readParts = new Map();
const files = new Map();

function part(place) {
  if (!readParts.has(place)) readParts.set(place, unpack(report.packed[place]));
  return readParts.get(place);
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

// The details of a compile and what reads their parts; null where they were left out.
async function detailsOf(index) {
  const row = report.compiles[index];
  if (!report.elsewhere) {
    return row.details == null ? null : { details: await part(row.details), part };
  }
  const load = report.elsewhere === "scripts" ? fromScript : fromServer;
  if (!files.has(index)) files.set(index, load(index));
  try {
    const { details, packed } = await files.get(index);
    return { details, part: (place) => unpack(packed[place]) };
  } catch {
    files.delete(index);
    return null;
  }
}

// A page on a disk may not fetch what lies beside it; a script that is there it may run.
const awaited = new Map();

function fromScript(index) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    awaited.set(index, (found) => resolve(found));
    script.addEventListener("error", reject);
    script.src = `compiles/${index}.js`;
    document.head.append(script);
  });
}

// Called by those scripts.
function receive(index, text) {
  awaited.get(index)(unpack(text));
}

async function fromServer(index) {
  const address = encodeURIComponent(report.compiles[index].address);
  const answer = await fetch(`compile?${address}`, { cache: "no-store" });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

// Fields with their default are left out of the document.
const listOf = (value) => value ?? [];
const FAILING = new Set(["failed", "crashed", "hung"]);
