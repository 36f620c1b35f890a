"use strict";
// The document of the report (docs/report.md), and its packed parts, each read when it is needed.

const report = JSON.parse(document.getElementById("report").textContent);
const readParts = new Map();

function part(place) {
  if (!readParts.has(place)) readParts.set(place, unpack(report.packed[place]));
  return readParts.get(place);
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

// Fields with their default are left out of the document.
const listOf = (value) => value ?? [];
const FAILING = new Set(["failed", "crashed", "hung"]);
