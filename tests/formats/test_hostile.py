"""A store from a stranger: no name in it resolves to anything that acts outside the compiler."""

import json
import re
from pathlib import Path

import pytest
import torch
from torch._dynamo.source import LocalSource

from tests.formats.compiles import compile_and_see
from tests.replay.devices import H200
from torchreel.errors import RefusedError, UnsupportedError, UntrustedError
from torchreel.formats import node_arguments, sources, targets
from torchreel.formats.allowed import functions
from torchreel.formats.checkpoints import config
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.replay.child.restore import imposed, options_of, restore
from torchreel.replay.imposed.device.answers import Known
from torchreel.store.documents.jsontypes import Json

CODE = "\n__import__('os').abort()\n#"
LOCAL = "fn:torch._dynamo.variables.builtin.SetAttrBuiltinVariable._call_setattr.<locals>"
HOSTILE_TARGETS = [
    "fn:os.system", "fn:builtins.eval", "fn:builtins.exec", "fn:builtins.__import__",
    "fn:builtins.open", "fn:torch.load", "fn:torch.save", "fn:torch.hub.load", "fn:torch.from_file",
    "fn:torch.ops.load_library", "fn:torch.utils.cpp_extension.load_inline", "fn:torch.compile",
    "fn:torch._weights_only_unpickler.load", "fn:torch._C._load_jit_module_from_file",
    "fn:torch._C._jit_script_compile", "fn:torch.classes.load_library", "fn:_operator.call",
    "fn:_operator.methodcaller", "fn:_operator.attrgetter", "fn:math.__loader__.load_module",
    "fn:torch.nn.functional.handle_torch_function", "fn:torch.nn.functional.boolean_dispatch",
    "fn:subprocess.run", "fn:torch.os.system", "fn:torch.sys.exit",
    "fn:torch.nn.functional.warnings",
    "fn:torch.functional.torch.load", "fn:torch.cuda._memory_viz._write_blocks",
    "op:aten.from_file.default", "packet:aten.from_file", "op:load_library.default",
    "op:__class__.default", "packet:aten.__class__", "hop:__class__", "opaque:os.system",
    "os.system", "numpy:function:os.system", "numpy:function:torch._numpy.load",
    "numpy:function:torch._numpy.from_dlpack", "numpy:function:torch._numpy.set_default_dtype",
    "numpy:function:torch._numpy.ndarray", "numpy:function:torch._numpy._util.operator",
    "numpy:operator:builtins.getattr", "numpy:operator:builtins.eval", "numpy:operator:os.system",
    "numpy:operator:_operator.methodcaller", "numpy:operator:torch.load", "numpy:method:__class__",
    "numpy:method:__init__", "numpy:method:__dlpack__", "numpy:method:data", "numpy:method:tofile",
    "numpy:attribute:T", "numpy:", "numpy:wrapper:sum", "numpy:operator:math.pi",
    "numpy:operator:math.inf", "numpy:function:torch._numpy.from_dlpack",
    "fn:torch.Tensor.apply_", "fn:torch.Tensor.register_hook", "fn:torch.Tensor.__class__",
    "fn:torch.Tensor.__reduce_ex__", "fn:torch.Tensor.sum.__self__", f"{LOCAL}.other",
    f"{LOCAL}._lower_version_count_by_1.__globals__",
    "fn:torch._dynamo.variables.distributed.BackwardHookVariable.create.<locals>._in_graph_bw_hooks",
    "", "fn:", "op:", "op:aten", "fn:torch", "fn:torch.distributed.init_process_group",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE_TARGETS)
def test_a_hostile_target_is_refused(text: str) -> None:
    with pytest.raises(RefusedError):
        targets.decode_target(text)


def test_dangerous_functions_of_dynamos_own_table_are_refused() -> None:
    """Dynamo's table of in-graph functions is not safe as it is: it loads files, for one."""
    from torchreel.torch_compat.dynamo import rules

    reaching = [
        name
        for name in rules.in_graph_names()
        if any(word in name for word in ("load", "file", "save", "write", "import_ir", "jit_"))
    ]
    assert len(reaching) > 50, "the table that this test is about has gone"
    allowed = [name for name in reaching if functions.resolve(name) is not None]
    assert set(allowed) == {
        "torch._C._autograd._saved_tensors_hooks_disable",
        "torch._C._autograd._saved_tensors_hooks_enable",
        "torch._functorch.predispatch.lazy_load_decompositions",
        "torch.autograd.forward_ad._maybe_load_decompositions",
    }, "names that only sound like files"


def test_targets_of_real_graphs_resolve_to_themselves() -> None:
    for function in (torch.relu, torch.nn.functional.linear, torch._C._nn.pad, torch.Size,
                     torch.ops.aten.add.Tensor, torch.ops.aten.add, torch.ops.higher_order.cond,
                     torch.sym_max, torch._C._set_grad_enabled):  # fmt: skip
        assert targets.decode_target(targets.encode_target(function)) is function


def test_a_custom_operator_needs_to_be_imported_by_name() -> None:
    with pytest.raises(UntrustedError, match="--import"):
        targets.decode_target("op:somebodys.operator.default")
    with pytest.raises(UnsupportedError, match=r"no higher-order operator 'foo'.* --import MODULE"):
        targets.decode_target("hop:foo")


@pytest.fixture(scope="module")
def document() -> dict[str, Json]:
    """The checkpoint of a real compile, as JSON to tamper with."""
    doc = compile_and_see(lambda x: torch.relu(x).sum(), torch.randn(3), dynamic=True)
    return json.loads(doc.checkpoints[0].to_bytes())  # type: ignore[no-any-return]


def _tampered(document: dict[str, Json], path: str, value: Json) -> CheckpointDoc:
    data = json.loads(json.dumps(document))
    *keys, last = [int(k) if k.isdigit() else k for k in path.split("/")]
    inner = data
    for key in keys:
        inner = inner[key]
    inner[last] = value
    return CheckpointDoc.from_bytes(json.dumps(data).encode())


WRAPPER: dict[str, Json] = {
    "k": "subclass", "inner": {}, "context": None, "size": [2], "stride": [1],
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("graph/nodes/2/target", "fn:os.system"),
        ("graph/nodes/2/op", "call_module"),
        ("graph/nodes/2/op", "exec"),
        ("graph/nodes/2/args", [{"fn": "fn:builtins.eval"}]),
        ("graph/nodes/2/args", [{"n": "later"}]),
        ("graph/nodes/2/args", [{"unknown": 1}]),
        ("graph/nodes/2/name", "sum_1"),
        ("graph/nodes/2/name", f"x{CODE}"),
        ("graph/nodes/2/kwargs", {f"x{CODE}": 1}),
        ("graph/nodes/1/target", f"x=({CODE}), y"),
        ("graph/nodes/1/target", "x.__class__"),
        ("graph/nodes/1/target", "class"),
        ("graph/nodes/2/name", "class"),
        ("graph/nodes/2/name", "2"),
        ("graph/attributes", {f"x{CODE}": {}}),
        ("graph/attributes", {"forward": {}}),
        ("graph/extra/compile_id", f"0/0{CODE}"),
        ("extra/compile_id", f"0/0{CODE}"),
        ("extra/class_names", {"": f"x{CODE}"}),
        ("inputs/1/dtype", "__class__"),
        ("inputs/1/dtype", "load"),
        ("inputs/1/device", "file:///etc/passwd"),
        ("inputs/1/size", ["__import__('os')"]),
        ("inputs/1/size", [-1]),
        ("inputs/1/stride", [2**70]),
        ("inputs/1/k", "subclass"),
        *(
            ("inputs/1", {**WRAPPER, "type": name})
            for name in ("os.path", "builtins.dict", "torch.nn.Parameter", f"x.{CODE}")
        ),
        ("shape_env/symbols", {"s77": ["__class__"]}),
        ("shape_env/symbols", {f"s77{CODE}": ["integer"]}),
        ("shape_env/guards", [["Lambda(s77)", False]]),
        ("shape_env/state", None),
    ],
)
def test_a_tampered_checkpoint_is_refused(
    document: dict[str, Json], path: str, value: Json
) -> None:
    assert restore(CheckpointDoc.from_bytes(json.dumps(document).encode())).graph is not None
    with pytest.raises(RefusedError):
        restore(_tampered(document, path, value))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("from_node", [{"name": f"x{CODE}", "target": "", "pass_name": "", "action": "create"}]),
        ("source_fn_stack", [[f"x{CODE}", {"fn": "fn:torch.relu"}]]),
        ("nn_module_stack", [[0, "a", {"class": f"a.B{CODE}"}]]),
        ("custom", {"d": [["'''+exit()", 1]]}),
        ("unbacked_bindings", [["s77", [{"record": "SequenceKey", "idx": "0]; exit() #"}]]]),
        ("unbacked_bindings", [["s77", [{"record": "DivideByKey", "divisor": "exit()"}]]]),
        ("unbacked_bindings", [["s77", [{"record": "CallMethodKey", "name": "data_ptr"}]]]),
        ("unbacked_bindings", [["s77", [{"record": "InnerTensorKey", "inner_name": "a b"}]]]),
    ],
)
def test_metadata_that_torch_would_write_into_a_program_is_left_out(
    document: dict[str, Json], key: str, value: Json
) -> None:
    """Inductor has the names of nodes, modules and keys in its output code, without quotes."""
    nodes = json.loads(json.dumps(document))["graph"]["nodes"]
    place = next(i for i, node in enumerate(nodes) if node["op"] == "call_function")
    restored = restore(_tampered(document, f"graph/nodes/{place}/meta/{key}", value))
    (why,) = (text for text in restored.lost if text.startswith(f"meta {key!r}: "))
    assert re.search("does not fit|key of an unbacked|no method that|letters, digits", why)
    (live,) = (n for n in restored.graph.graph.nodes if n.name == nodes[place]["name"])
    assert key not in live.meta


@pytest.mark.parametrize(
    "fact", [{"name": f"H200{CODE}"}, {"multi_processor_count": "1); exit("}, {"name": "'''"}]
)
def test_facts_of_a_gpu_are_numbers_and_a_name(fact: dict[str, Json]) -> None:
    with pytest.raises(UnsupportedError, match=r"is a number|does not fit"):
        Known({**H200, "devices": [{**H200["devices"][0], **fact}]})


def test_config_that_names_a_command_is_left_out(tmp_path: Path, document: dict[str, Json]) -> None:
    """Even when the store says that it is portable."""
    before = torch._inductor.config.cpp.cxx
    hostile: list[Json] = [
        {"module": "inductor", "key": key, "value": value, "portable": True}
        for key, value in (
            ("cpp.cxx", {"t": [None, "/bin/evil"]}),
            ("cpp.cxx", "evil"),
            ("post_grad_custom_pre_pass", {"fn": "fn:builtins.eval"}),
            ("cuda.cutlass_dir", "/tmp/evil"),
            ("debug_dir_root", str(tmp_path)),
            ("trace.upload_tar", True),
            ("no.such.entry", 1),
        )
    ]
    with config.patched(hostile) as left:
        assert torch._inductor.config.cpp.cxx == before
        assert len(left) >= 6


def test_harmless_config_is_restored() -> None:
    entry = config.encode_entry("inductor", "max_fusion_size", 7)
    with config.patched([entry]) as left:
        assert torch._inductor.config.max_fusion_size == 7
        assert left == []


def test_hostile_compile_options_are_refused(document: dict[str, Json]) -> None:
    options: list[Json] = [
        {"module": "inductor", "key": "cpp.cxx", "value": "/bin/evil", "portable": True}
    ]
    doc = _tampered(document, "extra/options", options)
    with pytest.raises(UntrustedError, match=r"cpp\.cxx"):
        options_of(doc)


def test_sources_and_values_build_only_from_closed_tables() -> None:
    hostile: list[Json] = [
        {"source": "Popen", "args": "sh"},
        {"source": "LocalSource", "nope": 1},
        {"enum": "Signals", "name": "SIGKILL"},
        "text",
        {"source": "AttrSource"},
    ]
    for data in hostile:
        with pytest.raises(UnsupportedError):
            sources.decode_source(data)
    unset = {"source": "LocalSource", "local_name": "x", "is_of_a_later_torch": False}
    assert sources.decode_source(unset) == LocalSource("x")
    with pytest.raises(UnsupportedError, match="does not take"):
        sources.decode_source({**unset, "is_of_a_later_torch": True})
    deep: Json = 1
    for _ in range(300):
        deep = [deep]
    with pytest.raises(UnsupportedError, match="nested deeper"):
        node_arguments.decode_value(deep, lambda kind, data: None)


@pytest.mark.parametrize(
    "rows",
    [
        [{"source": "LocalSource", "local_name": {"at": 0}}],  # of itself
        [{"source": "AttrSource", "base": {"at": 1}, "member": "m"}],  # of a later one
        [{"source": "LocalSource", "local_name": {"opaque": "function"}}],
        [{"source": "Popen", "args": "sh"}],
        ["sh"],
    ],
)
def test_a_table_of_sources_refers_to_rows_before_only(rows: list[Json]) -> None:
    with pytest.raises(UnsupportedError):
        sources.decode_named({"rows": rows, "at": {"p": 0}})


def test_a_place_that_a_table_of_sources_does_not_have_is_refused() -> None:
    rows: list[Json] = [{"source": "LocalSource", "local_name": "x"}]
    assert sources.decode_named({"rows": rows, "at": {"p": 0}})["p"] is not None
    for place in (1, -1):
        with pytest.raises(UnsupportedError, match="no row"):
            sources.decode_named({"rows": rows, "at": {"p": place}})


def test_a_chain_of_sources_deeper_than_python_goes_is_refused() -> None:
    rows: list[Json] = [{"source": "LocalSource", "local_name": "x"}]
    rows += [{"source": "AttrSource", "base": {"at": n}, "member": "m"} for n in range(5000)]
    deepest = sources.decode_named({"rows": rows[:201], "at": {"p": 200}})["p"]
    assert deepest is not None
    assert hash(deepest) == hash(deepest), "what is let through can be used"
    with pytest.raises(UnsupportedError, match="nested deeper than 200"):
        sources.decode_named({"rows": rows, "at": {"p": 5000}})


def test_imposed_state_is_taken_back(document: dict[str, Json]) -> None:
    doc = CheckpointDoc.from_bytes(json.dumps(document).encode())
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    changed = _tampered(document, "ambient/default_dtype", {"dtype": "float64"})
    with imposed(changed):
        assert torch.get_default_dtype() is torch.float64
    assert (torch.get_num_threads(), torch.get_default_dtype()) == (threads, dtype)
    assert doc.entry == "graph"


@pytest.mark.parametrize(
    "row",
    [
        {"source": "opaque", "name": "x", "at": 7},
        {"source": "TensorPropertySource", "base": {"enum": "TensorProperty", "name": "NO"}},
        {"source": "LocalSource", "local_name": {"f": "no number"}},
        {"source": "AttrSource", "base": {"at": -1}, "member": "x"},
        {"source": "AttrSource", "base": {"at": 9}, "member": "x"},
    ],
)
def test_a_malformed_row_of_a_table_of_sources_is_no_crash(row: dict[str, object]) -> None:
    rows = [{"source": "LocalSource", "local_name": "x"}, row]
    try:
        found = sources.decode_named({"rows": rows, "at": {"x": 1}})  # type: ignore[dict-item]
    except UnsupportedError:
        return
    assert list(found) == ["x"]
