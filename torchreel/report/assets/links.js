// Which lines, nodes and kernels belong together: what one click shows in all panes.

class Links {
  constructor(details, graphs, codes) {
    this.details = details;
    this.graphs = graphs;
    this.codes = codes;
    this.dynamo = details.graphs.findIndex((at) => at.stage === "dynamo");
    this.byName = graphs.map((graph) => new Map(graph.nodes.map((node, at) => [node.name, at])));
    this.lines = new Map();
    this.chains = graphs.map((graph, at) => graph.nodes.map((node) => this.chain(at, node)));
  }

  // The lines that a node came from, the innermost first; by way of Dynamo's node, if need be.
  chain(graph, node) {
    const keys = this.keysOf(this.graphs[graph], node.line);
    if (keys.length || graph === this.dynamo || this.dynamo < 0) return keys;
    const dynamo = this.graphs[this.dynamo];
    const origins = listOf(node.origins).map((name) => this.byName[this.dynamo].get(name));
    return [...new Set(origins.flatMap((at) =>
      at === undefined ? [] : this.keysOf(dynamo, dynamo.nodes[at].line)))];
  }

  keysOf(graph, line) {
    const keys = [];
    while (line != null && graph.lines?.[line] && keys.length < 100) {
      const row = graph.lines[line];
      const key = `${row.file}:${row.line}`;
      if (!this.lines.has(key)) this.lines.set(key, row);
      keys.push(key);
      line = row.by;
    }
    return keys;
  }

  // The graph that the code of a partition was generated from.
  lowered(code) {
    const partition = this.details.code[code].partition;
    const of = (stage) => this.details.graphs.findLastIndex(
      (at) => at.partition === partition && (!stage || at.stage === stage));
    return of("post_grad") >= 0 ? of("post_grad") : of("");
  }

  empty() {
    return {
      lines: new Set(), nodes: this.graphs.map(() => new Set()),
      kernels: this.codes.map(() => new Set()), first: null,
    };
  }

  ofLine(key) {
    const found = this.empty();
    found.lines.add(key);
    this.chains.forEach((chains, graph) => chains.forEach((keys, node) => {
      if (keys.includes(key)) found.nodes[graph].add(node);
    }));
    return this.withKernels(found);
  }

  ofNode(graph, node) {
    const found = this.empty();
    this.addNode(found, graph, node);
    return this.withKernels(found);
  }

  ofKernel(code, kernels) {
    const found = this.empty();
    const graph = this.lowered(code);
    for (const at of kernels) {
      found.kernels[code].add(at);
      for (const name of listOf(this.details.code[code].kernels[at].origins)) {
        const node = graph < 0 ? undefined : this.byName[graph].get(name);
        if (node !== undefined) this.addNode(found, graph, node);
      }
    }
    return found;
  }

  addNode(found, graph, node) {
    found.nodes[graph].add(node);
    for (const key of this.chains[graph][node]) found.lines.add(key);
    const row = this.graphs[graph].nodes[node];
    const origins = graph === this.dynamo ? [row.name] : listOf(row.origins);
    if (this.dynamo >= 0 && graph !== this.dynamo) {
      for (const name of origins) this.addNamed(found, this.dynamo, name);
    }
    this.graphs.forEach((other, at) => {
      if (at === graph || at === this.dynamo) return;
      if (graph === this.dynamo) this.addMadeFrom(found, at, row.name);
      else if (this.comparable(graph, at)) this.addNamed(found, at, row.name);
    });
  }

  addNamed(found, graph, name) {
    const node = this.byName[graph].get(name);
    if (node !== undefined) found.nodes[graph].add(node);
  }

  addMadeFrom(found, graph, name) {
    this.graphs[graph].nodes.forEach((node, at) => {
      if (listOf(node.origins).includes(name)) found.nodes[graph].add(at);
    });
  }

  // Names are kept from the joint graph on, within a partition.
  comparable(a, b) {
    const [one, other] = [this.details.graphs[a], this.details.graphs[b]];
    return one.partition === other.partition || !one.partition || !other.partition;
  }

  withKernels(found) {
    this.details.code?.forEach((at, code) => {
      const graph = this.lowered(code);
      if (graph < 0) return;
      const names = new Set([...found.nodes[graph]].map((n) => this.graphs[graph].nodes[n].name));
      listOf(at.kernels).forEach((kernel, place) => {
        if (listOf(kernel.origins).some((name) => names.has(name))) found.kernels[code].add(place);
      });
    });
    return found;
  }

  // How many kernels lead to a line of the program.
  mapped() {
    let [all, known] = [0, 0];
    this.details.code?.forEach((at, code) => listOf(at.kernels).forEach((_, place) => {
      all += 1;
      known += this.ofKernel(code, [place]).lines.size > 0;
    }));
    return [known, all];
  }
}
