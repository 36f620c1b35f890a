"""The schema of the document of a report, as a page of the documentation.

`python -m torchreel.report.catalogue > docs/report.md`; a test holds the page to this.
"""

from __future__ import annotations

from typing import get_args, get_type_hints

import msgspec

from torchreel.report.comparison.document import COMPARISON_STRUCTS
from torchreel.report.document import STRUCTS, DocumentPart

_HEAD = """# Reports

`torchreel report run.db -o report.html` writes one file for a browser. It asks no server for
anything (its Content-Security-Policy forbids every request), opens from a disk, follows the light
or dark theme of the system, and is 5 MB at most (`--max-size`): the details of compiles for which
there is no room are left out, and it says which command shows them. `run.db#2` is one recording,
`run.db#2/0/1` one compile.

- The first view: distinct failures with what led to them, the user's line, the smallest case known
  and the next command; distinct recompiles, graph breaks and restarts; all compiles, as a table or
  by the user's stack.

  ![The first view](pictures/first.png)

- The ranks of a job, where a store has several: what each compiled, and the first decision (guard,
  symbol, cache, graph, ...) in which they part, as `torchreel diff --ranks` finds it. Of each graph
  with collectives, their order on all ranks and the first one in which these part; the run time of
  each graph on each rank as Inductor estimates it, for a program that ran with `LOG_TLPARSE=1`.
- A compile: its failure, its stages on a time line, why entries of the cache could not be reused,
  with the checks that failed, graph breaks, sizes that were made static, its source, the order of
  its collectives and where its code calls others, estimates of run times. Where the message of a
  failure names no line, the line is that of the node that Inductor was lowering, or of the kernel
  that the message names; it says so where neither is known.
- An export: operators without a fake kernel or with a wrong one, decisions that depend on data, and
  guards, each with the line of the program. What `draft_export` finds is there too.

  ![A compile: its stages, and why it was compiled again](pictures/compile.png)

- Graphs and code: the program, two graphs and the generated code side by side, and a graph drawn. A
  click on a line, a node or a kernel marks all that belongs to it in all of them.

  ![A line of the program, and all that belongs to it](pictures/graphs.png)

- Guards, symbols, config: each guard with the user's line that needed it and who in torch asked;
  the table of symbols as it was after any event, by a slider, and each symbol with the events that
  made it what it is; config that is not the default; each lookup in torch's caches beside the
  nearest of the last three compiles of the function, with the factors in which their keys differ;
  the environment.

  ![Guards, with the line that needed each](pictures/guards.png)
  ![The symbols after an event](pictures/symbols.png)

- Records of torch: what its own trace says of the compile beside graphs and code, as text: metrics,
  guards as a tree, side effects, wrappers of AOTAutograd, bytecode, `fx_graph_runnable`. They take a
  quarter of a page at most.

Keys: `/` searches, the arrows move in lists and between tabs, Enter chooses, Escape clears or goes
back; in a drawing, `+`, `-`, `0` and the arrows.

Which node came from which is torch's own record: `from_node` for the nodes of AOTAutograd, the
sequence numbers of autograd for those of the backward, `inductor.kernel` and `inductor.extern` for
kernels ([events](events.md)); stack traces name the lines. A program does not have to be run with
anything but the recorder for that.

A graph of up to 300 nodes is drawn whole. Of a larger one, the 100 nodes around the chosen one are
drawn, and its list has all of them.

## Two recordings

```console
$ torchreel report five.db two.db -o diff.html  # exits with 1
wrote diff.html: 1 of 1 pair of compiles differ, ... bytes
next: torchreel diff five.db two.db
```

shows two stores, recordings or compiles side by side: which compiles belong together and which of
them differ, in which layers, and the first event in which they part; of each pair all that
`torchreel diff` finds, the graphs and the generated code side by side (lines that only use other
names are alike), and of each lookup in torch's caches the factors in which its key differs from the
nearest one of the other side. `five.db` and `two.db` are those of [Compare](compare.md).

## While a program runs

```console
$ torchreel serve run.db
serving run.db on http://127.0.0.1:40741/sO3...Q/
open it in a browser on this machine; Ctrl-C ends it
```

shows the same page while the store is written: new compiles come as they are recorded, details are
read when they are looked at, and the page says when its server is gone. It listens on 127.0.0.1
alone (`--port` chooses the port), answers GET requests whose address begins with the random token
and whose Host header is its own, and refuses all others: 403 without a Host header or with another
one. It reads the store, and writes nothing. Reading takes a fifth of a core at most.

## A recording too large for one page

```console
$ torchreel report run.db --site pages
wrote pages/index.html: ... files, ... bytes
```

writes a folder: `index.html` with all that a page has but details, and in `compiles` a file with
the details of each compile, which is read when that is looked at. It opens from a disk, as a page
does: a file is a script of one call with a text in base64, because a page from a disk may not fetch
what lies beside it. Its policy admits scripts from a disk and from its own server, and no request.

## Beside tlparse

Both were run (2026-11-25) on a GPT-2 of four layers in training, with eight graph breaks
and six recompiles, and on a program that fails in Inductor; what tlparse 0.4.3 does with several
ranks or an export is as its help says, and nobody ran that.

| | tlparse | `torchreel report` |
|---|---|---|
| reads | a log of `TORCH_TRACE` | a store; such a log by `torchreel import`, then without what the recorder alone sees |
| writes | folders: 266 files, 16.7 MB here, in 0.5 s of CPU time | one file, 1.24 MB here, in 3.3 s, with its first view after 0.4 s; a folder with `--site`; a page that is live with `serve` |
| compiles | by the user's stack | the same, and as a table that is sorted and searched |
| failures, restarts | a table: type, description, source | the distinct ones with what led to them, the smallest case, the next command |
| recompiles, graph breaks | records of each compile | the distinct ones with their lines, the checks that failed |
| graphs, generated code | a file for each stage | side by side with the program; a graph is drawn, searched, zoomed |
| a kernel's line | with `-i`, for a program that ran with Inductor's provenance tracking: three panes from the graph before the gradient to the code | one click from line to node to kernel and back, in every recording |
| guards | the guards of Dynamo as text; guards on symbols with stacks | each guard with the line that needed it and who in torch asked |
| symbols | specialisations with stacks | the table of symbols after any event |
| cache keys | the factors of each lookup, as JSON | the factors that differ from the nearest other lookup, and a false hit or miss |
| config | Inductor's and AOTAutograd's, as text | what is not the default |
| time | `chromium_events.json`, with torch's own timers | stages; `torchreel export --format perfetto` has the compiles of all ranks, and torch's own timers below them |
| metrics | times, cache sizes, counts, custom operators of each compile, as a page each | the same, among the records of torch |
| other artifacts | a file each: guards as text, wrappers, metadata, side effects | the same, among the records of torch |
| ranks | `--all-ranks-html`: groups with the same compiles, caches and order of collectives; estimates of run time, one trace of all | the first decision in which they part; the orders of collectives with the first one that differs, and by rank the estimates, of the first 100 compiles that have any |
| collectives in the code | a count of those that the code lacks, a file for each rank | which ones, in the compile |
| exports | `-e`: a page about `torch.export`: fake kernels, guards, what depends on data, with stacks and trees of expressions | the same with the line of the program, in the compile; no trees of expressions |
| a graph as a program | `fx_graph_runnable` | `torchreel export`, which runs it to see that it fails |
| two runs | no | side by side |
| requests to the network | none found in its pages | none, and a policy forbids them |

## All text is text

All text of a store is written as text: no markup, link or script can come out of it, and characters
that nobody sees are spelled out.

## The document

The page reads one JSON document, the script element `report`. Fields with their default are left
out of it. The members of `packed` are JSON documents of their own, deflated (RFC 1951), in base64:
a page unpacks the details of a compile when it is looked at.

Made by `python -m torchreel.report.catalogue`.
"""  # noqa: E501 (rows of a table)


_COMPARISON = """
## The document of a comparison

The page of two recordings reads this one instead.
"""


def page() -> str:
    """Return the page, as Markdown."""
    return "".join(
        [_HEAD, *map(_section, STRUCTS), _COMPARISON, *map(_section, COMPARISON_STRUCTS)]
    )


def _section(struct: type[DocumentPart]) -> str:
    rows = "".join(_row(struct, field) for field in msgspec.structs.fields(struct))
    summary = (struct.__doc__ or "").partition("\n")[0]
    table = f"| field | type | what it is |\n|---|---|---|\n{rows}"
    return f"\n### {struct.__name__}\n\n{summary}\n\n{table}"


def _row(struct: type[DocumentPart], field: msgspec.structs.FieldInfo) -> str:
    described, meta = get_args(get_type_hints(struct, include_extras=True)[field.name])
    optional = "" if field.required else ", may be missing"
    return f"| `{field.name}` | `{_spelled(described)}`{optional} | {meta.description} |\n"


def _spelled(described: object) -> str:
    """Return a type as it stands in the source."""
    text = described.__name__ if isinstance(described, type) and not get_args(described) else None
    return (
        (text or str(described))
        .replace("torchreel.report.comparison.document.", "")
        .replace("torchreel.report.document.", "")
        .replace("|", "or")
    )


if __name__ == "__main__":
    print(page(), end="")
