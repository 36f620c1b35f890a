"""The programs that a repro may be: closed lists of syntax, imports, functions and attributes.

Lives here: the list, and the walk over the finished program. Every name with dots that begins with
a module has to be one that the export itself writes, or one that a graph may call
(`formats.targets`). Called by `script` and before files are written.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Sequence
from functools import cache
from io import BytesIO

import torch

from torchreel.errors import TorchreelError, UnsupportedError
from torchreel.escaping.characters import is_visible
from torchreel.escaping.python import is_identifier
from torchreel.formats import namespaces, numpy_calls, targets
from torchreel.formats.allowed.members import tensor_attributes, tensor_methods
from torchreel.formats.checkpoints import config
from torchreel.minifier.scripts.names import public_functions
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat import configs

_SYNTAX = (
    ast.Module, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.arguments, ast.arg, ast.Return,
    ast.Assign, ast.Expr, ast.With, ast.withitem, ast.For, ast.If, ast.Try, ast.ExceptHandler,
    ast.Continue, ast.Raise, ast.Call, ast.keyword, ast.Starred, ast.Name, ast.Attribute,
    ast.Subscript, ast.Slice, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.BinOp, ast.UnaryOp,
    ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda, ast.ListComp, ast.GeneratorExp,
    ast.comprehension, ast.JoinedStr, ast.FormattedValue, ast.operator, ast.unaryop, ast.boolop,
    ast.cmpop, ast.expr_context,
)  # fmt: skip


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MODULES = _words("torch math operator faulthandler resource time os cProfile logging warnings re")
_FROM = {
    "torch.utils.checkpoint": _words(
        "checkpoint CheckpointPolicy create_selective_checkpoint_contexts"
    ),
    "torch.utils._pytree": _words("tree_leaves tree_map_only"),
    "torch._higher_order_ops.while_loop": _words("while_loop"),
    "torch._inductor.graph": _words("GraphLowering"),
    "torch._inductor": _words("metrics"),
    "torch._dynamo.utils": _words("counters"),
    "torch._dynamo.source": _words("ConstantSource"),
    "torch._guards": _words("TracingContext tracing"),
    "torch._subclasses": _words("FakeTensorMode"),
    "torch.fx.experimental.symbolic_shapes": _words("DimDynamic ShapeEnv StatelessSymbolicContext"),
    "torch._inductor.compile_fx": _words("compile_fx_inner"),
    "torch._inductor.virtualized": _words("V"),
    "torch.fx.passes.fake_tensor_prop": _words("FakeTensorProp"),
    "torch.testing._internal.distributed.fake_pg": _words("FakeStore"),
    "torch.distributed.device_mesh": _words("DeviceMesh"),
    "torch.distributed.tensor": _words("DTensor Partial Replicate Shard"),
}
_BUILTINS = _words(
    "abs any bool complex divmod enumerate float getattr int isinstance iter len list dict tuple "
    "max min next pow print range round slice str sum zip AssertionError Exception"
)
# What the export writes around a graph, whatever the graph calls.
_PATHS = _words(
    "torch.compile torch.manual_seed torch.randn torch.randint torch.tensor torch.Generator "
    "torch.view_as_complex torch._efficientzerotensor torch.nn.Parameter torch._conj "
    "torch._neg_view torch.device torch.Size torch.Tensor torch.cond torch.empty_strided "
    "torch.set_default_dtype torch.set_float32_matmul_precision torch.use_deterministic_algorithms "
    "torch.backends.mkldnn.set_flags torch.inference_mode torch.no_grad "
    "torch._C._AutoDispatchBelowAutograd torch.autocast torch._dynamo.mark_dynamic "
    "torch._dynamo.maybe_mark_dynamic torch.fx.Graph torch.fx.GraphModule torch.nn.Module "
    "torch._dynamo.lookup_backend torch._functorch.config.patch torch.testing.assert_close "
    "faulthandler.enable faulthandler.dump_traceback_later resource.setrlimit resource.RLIMIT_AS "
    "resource.getrusage resource.RUSAGE_SELF time.perf_counter os.times cProfile.Profile "
    "logging.Logger.handle logging.WARNING warnings.simplefilter re.search re.MULTILINE "
    "torch.library.define torch.library.impl torch.library.register_fake torch.library.get_ctx "
    "torch.library.custom_op "
    "metrics.reset metrics.generated_kernel_count ShapeEnv.__init__ V.set_fake_mode "
    "DimDynamic.DUCK DimDynamic.STATIC torch._dynamo.utils.numpy_to_tensor_wrapper "
    "torch._dynamo.utils.numpy_operator_wrapper torch.sparse_coo torch.sparse_csr torch.sparse_csc "
    "torch.sparse_bsr torch.sparse_bsc CheckpointPolicy.MUST_SAVE CheckpointPolicy.PREFER_SAVE "
    "CheckpointPolicy.MUST_RECOMPUTE CheckpointPolicy.PREFER_RECOMPUTE "
    "torch.distributed.init_process_group DTensor.from_local "
    "CheckpointPolicy.MUST_CPU_OFFLOAD CheckpointPolicy.PREFER_CPU_OFFLOAD"
)
_DEFINING = ("torch.library.define", "torch.library.custom_op")
"""They make an operator, whose name is their first argument."""
_METHOD_OF_ARRAYS = "torch._dynamo.utils.numpy_method_wrapper"
"""Takes the name of a method."""
_ATTRIBUTE_OF_ARRAYS = "torch._dynamo.utils.numpy_attr_wrapper"
_READERS = frozenset({"getattr", _ATTRIBUTE_OF_ARRAYS})
"""They take an object, and the name of a member."""
_SET_PATHS = _words(
    "logging.Logger.handle warnings.showwarning GraphLowering.save_output_code ShapeEnv.__init__"
)
# Attributes of what these return, beside those of tensors.
_ATTRIBUTES = _words(
    "append backward callcount disable enable from_tensor get getMessage getstats guards join "
    "levelno meta placeholder get_attr call_function call_method call_module output "
    "new_dynamic_size propagate_dont_convert_inputs register_buffer ru_maxrss splitlines"
)
_ENCODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


def check_script(text: str, imports: Sequence[str] = ()) -> str:
    """Return the text, if it is a program that the export may write.

    `imports` are modules of the user's: whatever is in those may be called. Raises
    `UnsupportedError` with the first thing that may not be there.
    """
    check_text(text)
    program = parsed(text)
    for token in tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__):
        if token.type != tokenize.COMMENT and not token.string.isascii():
            raise _refused(f"the characters {token.string!a:.60}")
    _Program(program, tuple(imports)).visit(program)
    return text


def check_program(text: str, program: ast.Module) -> str:
    """Return the text, if it is that program with comments and nothing else.

    The program is a user's own, run on trust: any code may be in it, but none that is not seen.
    """
    check_text(text)
    if ast.dump(parsed(text)) != ast.dump(parsed(ast.unparse(program))):
        raise _refused("code that the program has not")
    return text


def check_text(text: str) -> None:
    """Raise `UnsupportedError` for characters that nobody sees, and for a choice of encoding."""
    if not is_visible(text):
        raise _refused("characters that can't be seen")
    for line in text.encode("utf-8", "surrogatepass").split(b"\n", 2)[:2]:
        if _ENCODING.match(line):
            raise _refused("a comment that chooses an encoding")
    tokenize.detect_encoding(BytesIO(text.encode("utf-8", "surrogatepass")).readline)


def parsed(text: str) -> ast.Module:
    """Return the syntax tree.  Raises `UnsupportedError` where there is none."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnsupportedError(f"what was written is no program ({error})") from error


def _refused(what: str) -> UnsupportedError:
    return UnsupportedError(f"a repro may not hold {what}")


class _Program(ast.NodeVisitor):
    """Visits every part of a program, and raises for one that is not on the lists."""

    def __init__(self, program: ast.Module, imports: tuple[str, ...]) -> None:
        self._imports = imports
        self._modules: set[str] = set()
        """Names behind which there are more names: modules and classes."""
        self._names = _BUILTINS | _bound(program)
        self._operators = _defined(program)
        self._set = {n.id for n in ast.walk(program) if isinstance(n, ast.Name) and _is_set(n)}

    def visit(self, node: ast.AST) -> None:
        """See `NodeVisitor`: only what is in the list of syntax."""
        if not isinstance(node, _SYNTAX):
            raise _refused(f"the syntax of {type(node).__name__}")
        super().visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        """Check that a module is on the closed list, or was named by the user."""
        for alias in node.names:
            functional = (alias.name, alias.asname) == ("torch.nn.functional", "F")
            known = alias.name in {*_MODULES, *_config_names(), *self._imports}
            if not functional and (alias.asname or not known):
                raise _refused(f"the import of {alias.name!r:.60}")
            self._modules.add(alias.asname or alias.name.partition(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Check that the names are on the closed list."""
        for alias in node.names:
            known = _FROM.get(node.module or "", frozenset())
            if node.level or alias.asname or alias.name not in known:
                raise _refused(f"the import of {alias.name!r:.60}")
            self._modules.add(alias.name)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Check a function: nothing may run where it is defined."""
        given = node.args
        if node.decorator_list or node.returns or given.defaults or given.kw_defaults:
            raise _refused("a function that is more than its body")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Check that a name is one of the program's, or one of a few builtins."""
        bare_module = node.id in {*_MODULES, "F"} & self._modules - self._set
        known = node.id in self._names and not bare_module and node.id != "getattr"
        if not _is_set(node) and not known:
            raise _refused(f"the name {node.id!r:.60}")

    def visit_Call(self, node: ast.Call) -> None:
        """Check a call; what reads a member by its name is given that name itself."""
        path = self._known_path(node.func)
        if path == _METHOD_OF_ARRAYS:
            name = node.args[0] if len(node.args) == 1 and not node.keywords else None
            if not isinstance(name, ast.Constant) or name.value not in numpy_calls.methods():
                raise _refused("the name of a method that no array has, or that is computed")
        elif path in _READERS:
            self._member(path, node.args, node.keywords)
        elif self._is_node_of_reader(node):
            given = node.args[1] if len(node.args) == 2 else None
            items = given.elts if isinstance(given, ast.Tuple) else []
            self._member(self._known_path(node.args[0]), items, node.keywords)
            self.visit(node.func)
        else:
            self.generic_visit(node)

    def _known_path(self, node: ast.expr) -> str | None:
        path = _path(node)
        known = path == "getattr" or "torch" in self._modules
        return path if known else None

    def _is_node_of_reader(self, node: ast.Call) -> bool:
        """Return True for a node of a graph that reads a member: `g.call_function(getattr, ...)`"""
        is_node = isinstance(node.func, ast.Attribute) and node.func.attr == "call_function"
        return is_node and bool(node.args) and self._known_path(node.args[0]) in _READERS

    def _member(
        self, reader: str | None, given: Sequence[ast.expr], keywords: Sequence[ast.keyword]
    ) -> None:
        """Check `owner, "name"`, which `getattr` is given, or what stands for it with arrays."""
        name = given[1] if len(given) == 2 and not keywords else None
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            raise _refused("getattr of a name that is computed")
        if reader == _ATTRIBUTE_OF_ARRAYS and name.value not in numpy_calls.ATTRIBUTES:
            raise _refused(f"the attribute {name.value!r:.60} of an array")
        if reader == _ATTRIBUTE_OF_ARRAYS:
            self.visit(given[0])
        else:
            self._attribute(given[0], name.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Check a path from a module that is on a list, or an attribute of a value."""
        if isinstance(node.ctx, ast.Load):
            self._attribute(node.value, node.attr)
        elif not self._may_be_set(_path(node) or ""):
            raise _refused(f"an assignment to {ast.unparse(node):.60}")

    def visit_Assign(self, node: ast.Assign) -> None:
        """Check an assignment; to an entry of a config, only of a value that does no harm there."""
        paths = [_path(target) or "" for target in node.targets]
        if not any(_is_entry(path, node.value) for path in paths):
            self.generic_visit(node)
        self.visit(node.value)

    def _attribute(self, owner: ast.expr, name: str) -> None:
        path = _path(owner)
        if path is not None and path.partition(".")[0] in self._modules:
            if not _may_be_used(f"{path}.{name}", (*self._imports, *self._operators)):
                raise _refused(f"the name {path}.{name}")
            return
        if name not in _ATTRIBUTES and not _is_of_tensors(name):
            raise _refused(f"the attribute {name!r:.60}")
        self.visit(owner)

    def _may_be_set(self, path: str) -> bool:
        root, _, name = path.rpartition(".")
        own = root == "root" and root not in self._modules and not name.startswith("__")
        variable = "." not in root and root not in self._modules
        return own or (variable and name == "data") or path in _SET_PATHS


def _bound(program: ast.Module) -> frozenset[str]:
    """Return all names that a program gives something.

    Raises for one that means something to Python.
    """
    found: set[str] = set()
    for node in ast.walk(program):
        if isinstance(node, ast.Name) and _is_set(node):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
    for name in found:
        if not is_identifier(name) or name.startswith("__"):
            raise _refused(f"the name {name!a:.60}")
    return frozenset(found)


def _defined(program: ast.Module) -> tuple[str, ...]:
    """Return the operators that a program defines.

    Raises for one in a namespace of torch's own.
    """
    found = []
    for node in ast.walk(program):
        if isinstance(node, ast.Call) and _path(node.func) in _DEFINING:
            first = node.args[0] if node.args else None
            name = first.value if isinstance(first, ast.Constant) else ""
            namespace, _, operator = str(name).partition("::")
            custom = namespaces.is_custom(f"op:{namespace}.{operator}")
            if not operator.isidentifier() or not custom:
                raise _refused(f"a definition of the operator {name!r:.60}")
            found.append(f"torch.ops.{namespace}.{operator}")
    return tuple(found)


def _is_set(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _path(node: ast.expr) -> str | None:
    """Return `a.b.c` for a chain of attributes of a name; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = _path(node.value)
        return None if owner is None else f"{owner}.{node.attr}"
    return None


def _may_be_used(path: str, imports: tuple[str, ...]) -> bool:
    if path in _PATHS or any(path.startswith(f"{module}.") for module in imports):
        return True
    if path.startswith("torch.ops."):
        return _is_operator(path.removeprefix("torch.ops."), bool(imports))
    return _is_constant(path) or _is_function(path)


def _is_operator(path: str, custom: bool) -> bool:
    if path.startswith("higher_order."):
        return _resolves(f"hop:{path.removeprefix('higher_order.')}")
    kinds = [f"op:{path}", f"packet:{path}"]
    return any(_resolves(name) or (custom and namespaces.is_custom(name)) for name in kinds)


def _is_constant(path: str) -> bool:
    """Return True if a path is a dtype, a layout, a memory format or a tag of operators."""
    if path.startswith("torch.Tag."):
        return isinstance(getattr(torch.Tag, path.removeprefix("torch.Tag."), None), torch.Tag)
    found = getattr(torch, path.removeprefix("torch."), None)
    return isinstance(found, (torch.dtype, torch.layout, torch.memory_format))


def _is_function(path: str) -> bool:
    function = public_functions().get(path)
    if function is not None:
        return not targets.encode_target(function).startswith("opaque:")
    return _resolves(f"fn:{path}") or path in numpy_calls.array_functions()


@cache
def _resolves(target: str) -> bool:
    try:
        return callable(targets.decode_target(target))
    except TorchreelError:
        return False


def _is_of_tensors(name: str) -> bool:
    """Return True for a method or an attribute of tensors that a graph may use."""
    return name in tensor_methods() or name in tensor_attributes()


def _is_entry(path: str, value: ast.expr) -> bool:
    """Return True if a path is an entry of a config that may have that value without trust."""
    for short, module in configs.config_modules().items():
        key = path.removeprefix(f"{module.__name__}.")
        if key != path and key in configs.config_keys(module):
            given = value.value if isinstance(value, ast.Constant) else None
            # Of anything else that is written, the strings in it decide.
            tree = given if isinstance(given, (bool, int, str)) else "text"
            entry: Json = {"module": short, "key": key, "value": tree}
            return bool(config.writable([entry])[0])
    return False


def _config_names() -> list[str]:
    return [module.__name__ for module in configs.config_modules().values()]
