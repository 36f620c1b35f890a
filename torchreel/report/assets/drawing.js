// A graph as a picture: laid out by dagre when it is looked at, zoomed, dragged and searched.

// Nodes that are drawn at once: dagre takes up to a second or two for so many. Of a larger graph,
// the neighbourhood of one node is drawn (docs/report.md).
const WHOLE = 300;
const NEAR = 100;
const FEW = 8;
const HEIGHT = 22;
const LETTER = 6.7;

class Drawing {
  constructor(graph, choose) {
    this.graph = graph;
    this.choose = choose;
    this.users = graph.nodes.map(() => []);
    graph.nodes.forEach((node, at) => listOf(node.inputs).forEach((input) =>
      this.users[input].push(at)));
    this.told = el("div", { class: "told", role: "status" });
    this.canvas = svg("g", {});
    this.picture = svg("svg", { role: "img", "aria-label": "The graph, drawn", tabindex: 0 },
      svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4,
        markerWidth: 6, markerHeight: 6, markerUnits: "userSpaceOnUse", orient: "auto" },
      svg("path", { d: "M0,0 L8,4 L0,8 z", fill: "currentColor", opacity: 0.5 }))), this.canvas);
    const tool = (label, title, act) => el("button", { type: "button", title,
      "aria-label": title, onclick: act }, label);
    this.element = el("div", { class: "drawing" }, this.picture, this.told,
      el("div", { class: "tools" },
        tool("+", "zoom in", () => this.zoom(1.25)), tool("−", "zoom out", () => this.zoom(0.8)),
        tool("fit", "fit the picture", () => this.fit())));
    this.at = { x: 0, y: 0, scale: 1 };
    this.shown = new Map();
    this.listen();
  }

  // -- what is drawn ------------------------------------------------------------------------------

  draw(around) {
    const nodes = this.graph.nodes;
    const wanted = nodes.length <= WHOLE ? new Set(nodes.keys()) : this.near(around ?? 0);
    this.wanted = wanted;
    this.told.textContent = wanted.size === nodes.length ? counted(nodes.length, "node") :
      `${wanted.size} of ${counted(nodes.length, "node")}, around ${nodes[around ?? 0].name}`;
    const layout = this.layout(wanted);
    this.shown = new Map();
    this.edges = [];
    const edges = layout.edges().map((edge) => this.edge(edge, layout.edge(edge)));
    const boxes = layout.nodes().map((id) => this.box(id, layout.node(id)));
    this.canvas.replaceChildren(...edges, ...boxes);
    this.size = layout.graph();
  }

  near(around) {
    const found = new Set([around]);
    for (const at of found) {
      for (const next of [...listOf(this.graph.nodes[at].inputs), ...this.users[at]]) {
        if (found.size >= NEAR) return found;
        found.add(next);
      }
    }
    return found;
  }

  // Inputs and constants are drawn beside each node that uses them, and a node that returns many
  // values is left out: both would draw long edges across the picture, and say nothing by that.
  layout(wanted) {
    const made = new dagre.graphlib.Graph();
    made.setGraph({ rankdir: "TB", nodesep: 12, ranksep: 26, marginx: 12, marginy: 30 });
    made.setDefaultEdgeLabel(() => ({}));
    const add = (id, at) =>
      made.setNode(id, { width: this.label(at).length * LETTER + 16, height: HEIGHT });
    this.returned = new Set();
    for (const at of wanted) {
      const inputs = listOf(this.graph.nodes[at].inputs);
      if (this.isLeaf(at) && this.users[at].some((user) => wanted.has(user))) continue;
      if (this.graph.nodes[at].op === "output" && inputs.length > FEW) {
        for (const input of inputs) this.returned.add(input);
        continue;
      }
      add(String(at), at);
      for (const input of inputs) {
        if (!wanted.has(input)) continue;
        const id = this.isLeaf(input) ? `${input}@${at}` : String(input);
        if (this.isLeaf(input)) add(id, input);
        made.setEdge(id, String(at));
      }
    }
    dagre.layout(made);
    return made;
  }

  isLeaf(at) {
    return ["placeholder", "get_attr"].includes(this.graph.nodes[at].op);
  }

  label(at) {
    const node = this.graph.nodes[at];
    const called = node.op.startsWith("call") ? `${node.name} = ${node.target}` : node.name;
    return called.length > 44 ? `${called.slice(0, 43)}…` : called;
  }

  box(id, place) {
    const { width, x, y } = place;
    const at = parseInt(id, 10);
    const node = this.graph.nodes[at];
    const returned = this.returned.has(at) ? " returned" : "";
    const made = svg("g", { class: `node ${safeClass(node.op)}${returned}`, "data-node": at,
      transform: `translate(${x},${y})` },
    svg("title", {}, node.text),
    svg("rect", { x: -width / 2, y: -HEIGHT / 2, width, height: HEIGHT, rx: 3 }),
    svg("text", {}, this.label(at)));
    made.addEventListener("click", () => this.moved || this.choose(at));
    if (!this.shown.has(at)) this.shown.set(at, []);
    this.shown.get(at).push({ made, x, y });
    return made;
  }

  edge({ v, w }, { points }) {
    const path = points.map(({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" L");
    const made = svg("path", { class: "edge", d: `M${path}`, "marker-end": "url(#tip)" });
    this.edges.push({ made, from: parseInt(v, 10), to: parseInt(w, 10) });
    return made;
  }

  // -- what is marked -----------------------------------------------------------------------------

  mark(hits, chosen) {
    const wanted = chosen ?? [...hits][0];
    if (wanted !== undefined && !this.wanted.has(wanted)) this.draw(wanted);
    for (const [at, { made }] of this.boxes()) {
      made.classList.toggle("hit", hits.has(at));
      made.classList.toggle("chosen", at === chosen);
    }
    for (const { made, from, to } of this.edges ?? []) {
      made.classList.toggle("hit", hits.has(from) && hits.has(to));
    }
    if (wanted !== undefined) this.show(wanted, chosen === undefined ? 0.15 : 0.5);
  }

  match(matches, current) {
    if (current !== undefined && !this.wanted.has(current)) this.draw(current);
    for (const [at, { made }] of this.boxes()) made.classList.toggle("match", matches.has(at));
    if (current !== undefined) this.show(current);
  }

  boxes() {
    return [...this.shown].flatMap(([at, boxes]) => boxes.map((box) => [at, box]));
  }

  // -- where one looks ----------------------------------------------------------------------------

  listen() {
    let from = null;
    const picture = this.picture;
    picture.addEventListener("pointerdown", (event) => {
      from = { x: event.clientX - this.at.x, y: event.clientY - this.at.y };
      this.start = { x: event.clientX, y: event.clientY };
      this.moved = false;
    });
    picture.addEventListener("pointermove", (event) => {
      if (!from || !event.buttons) return;
      if (Math.hypot(event.clientX - this.start.x, event.clientY - this.start.y) < 4) return;
      this.moved = true;
      this.look({ ...this.at, x: event.clientX - from.x, y: event.clientY - from.y });
    });
    picture.addEventListener("pointerup", () => { from = null; });
    picture.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = picture.getBoundingClientRect();
      this.zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, event.clientX - box.x, event.clientY - box.y);
    }, { passive: false });
    picture.addEventListener("keydown", (event) => {
      const keys = {
        "+": () => this.zoom(1.25), "=": () => this.zoom(1.25), "-": () => this.zoom(0.8),
        "0": () => this.fit(), ArrowLeft: () => this.move(60, 0), ArrowRight: () => this.move(-60, 0),
        ArrowUp: () => this.move(0, 60), ArrowDown: () => this.move(0, -60),
      };
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  look(at) {
    this.at = at;
    this.canvas.setAttribute("transform", `translate(${at.x},${at.y}) scale(${at.scale})`);
  }

  move(x, y) {
    this.look({ ...this.at, x: this.at.x + x, y: this.at.y + y });
  }

  zoom(by, x = this.picture.clientWidth / 2, y = this.picture.clientHeight / 2) {
    const scale = Math.min(4, Math.max(0.02, this.at.scale * by));
    const ratio = scale / this.at.scale;
    this.look({ scale, x: x - (x - this.at.x) * ratio, y: y - (y - this.at.y) * ratio });
  }

  fit() {
    const [width, height] = [this.picture.clientWidth || 800, this.picture.clientHeight || 400];
    const scale = Math.min(1.1, width / this.size.width, height / this.size.height);
    this.look({ scale, x: (width - this.size.width * scale) / 2, y: 4 });
  }

  // The beginning of the graph, at a size that can be read.
  begin() {
    this.fit();
    if (this.at.scale < 0.75) {
      const highest = Math.min(...this.boxes().map(([, box]) => box.y));
      const first = this.boxes().find(([, box]) => box.y === highest);
      if (first) this.center(first[1], 0.9, 0.12);
    }
  }

  show(at, down = 0.5) {
    const found = this.shown.get(at)?.[0];
    if (found) this.center(found, Math.max(this.at.scale, 0.75), down);
  }

  center({ x, y }, scale, down) {
    const [width, height] = [this.picture.clientWidth || 800, this.picture.clientHeight || 400];
    this.look({ scale, x: width / 2 - x * scale, y: height * down - y * scale });
  }
}
