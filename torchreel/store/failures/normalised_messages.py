"""The text of an exception, reduced to what is the same for the same bug in any graph.

`normalise_message` drops what torch adds around a message (hints, user code, dumps of arguments)
and replaces what depends on numbering, sizes and places. A C++ compiler's output becomes its first
error. The comparison of event logs has a normalisation of its own
(`torchreel.replay.compare.normalise`), because there the numbers do matter.
"""

import re
from itertools import dropwhile

# Torch's frame around another message.
_PREFIX = re.compile(
    r"(?:backend='[^'\n]*' raised:\n(?:[A-Za-z_][\w.]*: )?"
    r"|(?:torch\._inductor\.exc\.)?(?:InductorError|LoweringException|BackendCompilerFailed): )"
)

# Where torch goes on with something that isn't the message: from there to the end is dropped.
_ENDS = re.compile(
    r"^[ \t]*(?:from user code:|While executing |Original traceback:|Use tlparse |Set TORCH\w+=|"
    r"You can suppress this exception|For more information|For more details|User Stack |"
    r"Developer debug context:|[Cc]aused by: |args\[\d+\]: |kwargs: |Hint: |C\+\+ stack trace|"
    r"Traceback \(most recent call last\)|To fix the error|This error most often comes from|"
    r"The error above occurred when calling torch\.export|The branch condition involves a tensor)",
    re.MULTILINE,
)

# The text of an exception in a compile worker is a traceback; its last exception is the failure.
_TRACEBACK = "Traceback (most recent call last):\n"
_OF_WORKER = re.compile(
    r"\s*+(?:(?:[\w.]+: )?An exception occurred in a subprocess:\n\nName=.*\n)?"
    rf"{re.escape(_TRACEBACK)}"
)

# Before its own words, Triton prints the kernel down to the wrong line, of it the last twelve.
_EXCERPT = re.compile(
    r"(\A|\A[\w.]+: )at \d+:\d+:\n"
    r"(?: <source (?:empty|unavailable)>|(?:(?! *\^$).*\n){0,12} *\^)(?:\n|\Z)",
    re.MULTILINE,
)

# After these words, `i8` is a type of elements; anywhere else it may be an index of a kernel, and
# `u8` a symbol.  A kernel has no sixteen indices.
_TYPES = (
    r"(?:[fi](?:16|32|64|128)|(?<=<)[iu](?:1|8|16|32|64|128)|(?<=type )[iu](?:1|8|16|32|64|128)"
    r"|(?:(?<=be )|(?<=got )|(?<=expected ))i[18])\b"
)

_FILES = "py|cpp|cc|cu|h|hpp|so|o|json|db"

# What is left of these in any message is its shape. The order matters: a rule sees what the ones
# before it left over.
_RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        # typographic quotes (g++ prints them in a UTF-8 locale) and colours
        (r"[\u2018\u2019\u201c\u201d`]", "'"),
        (r"\x1b\[[0-9;]*[mK]", ""),
        # where a recursion without end came to its end: it depends on how deep the program was
        (
            r"(maximum recursion depth exceeded)(?: in (?:comparison|__\w+__)"
            r"| while \w+ [\w ]{1,40}?(?:object|string|exception)\b| during \w+)?",
            r"\1",
        ),
        # addresses, then files by their kind: '/tmp/x/cabc.main.cpp:146:57' is PATH.cpp; between
        # quotes, a path may hold blanks
        (r"\b0x[0-9a-fA-F]+\b", "ADDRESS"),
        # names with the address of an object in them: __subclass_Tensor_94784665072528_c0; and with
        # a UUID: __compiled_fn_1_4f2b3e81_7c53_4973_a906_9b883b33637e
        (r"\b[A-Za-z_]\w*?_\d{9,}(?:_\w+)?\b", "NAME"),
        (r"\b__compiled_fn_\d+_[0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12}\b", "NAME"),
        (
            rf"(?<![\w'\"])(['\"])(?:~|\.{{0,2}})/[^'\"\n]*?\.({_FILES})(?:[:,]\d+)*+\1",
            r"\1PATH.\2\1",
        ),
        (r"(?<![\w'\"])(['\"])/(?:[^'\"\n/]++/)++[^'\"\n/]*+\1", r"\1PATH\1"),
        (
            r"(?<![\w@+~.)\]/-])(?:~?/|\.{1,2}/)?(?:[\w@+~.-]+/)*[\w@+~.-]+"
            rf"\.({_FILES})\b(?:[:,]\d+)*",
            r"PATH.\1",
        ),
        (r"(?<![\w.)\]/:<])/(?:[\w@+~.-]+/)+[\w@+~.-]*", "PATH"),
        (r"\b(?=[a-z2-7]*\d)[a-z2-7]{40,}\b|\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{12,}\b", "HASH"),
        # schemas of operators: a call with fewer operands has another
        (
            r"(?<![\w.])((?:\w+::)?\w+(?:\.\w+)?)\((?:(?:Any|Tensor|SymInt|int|float|bool|Scalar)"
            r"(?:\(\w+!?\))?(?:\[\d*\])?\?? [^()\n]*(?:\(\w+!?\)[^()\n]*)*)\)"
            r" -> (?:\([^()\n]*\)|\w+)",
            r"\1(SCHEMA)",
        ),
        # guard sources: L['self'].lins[0].weight, G['x']
        (r"\b[LG]\[(?:'[^'\n]*'|\"[^\"\n]*\")\](?:\.\w+|\[[^\[\]\n]*\])*", "SOURCE"),
        # inputs by their number and, in brackets, what the program or the graph calls them
        (r"\b([Ii]nput \d+) \((?:\w|[.'\"]|\[[^\[\]\n]*\])+\)", r"\1"),
        # what a fake tensor looks like
        (r"\bFakeTensor\((?:[^()\n]|\([^()\n]*\))*\)", "TENSOR"),
        # %add_12 and placeholders such as l_self_modules_lin_parameters_weight_
        (r"%\w+", "NAME"),
        (r"\b[lL]_\w*_\b", "NAME"),
        # symbols s77, u0, zuf3; indices and variables of kernels; buffers; numbered graph nodes
        # (but `u1::add` and `u1.add.default` are an operator, and `f32` a type)
        (
            rf"\b(?!{_TYPES})(?:(?:s|u|f|zf|zuf|i|x|y|z|r|p|q|d|ks|op)\d+(?!::\w|\.\w+\.default\b)"
            r"|(?:s|u|f|zf|zuf|i|x|y|z|r|p|q|d|ks|op)\d+_\d+|(?:tmp|buf|arg)\d+(?:_\d+)?)\b",
            "NAME",
        ),
        (r"(?<![\w.])_?[A-Za-z][A-Za-z_]*(?:\d+[A-Za-z_]+)*_\d+\b|\b_tensor_constant\d+\b", "NAME"),
        # numbers that are no part of a name (float32, max_pool2d), lists of them whatever length
        (r"(?<![\w.])[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?!\w)", "N"),
        (r"\b(NAME|N|TENSOR)(?:\s*[*+,x-]\s*(?:NAME|N|TENSOR)\b)+", "N"),
        (r"\b(NAME|N|TENSOR),(?=\))", r"\1"),
    ]
]

# A message that goes on for longer is a dump of something; no rule looks at more than the last of
# these, because a dump can be megabytes long.
_LINES = 8
_LINE_LENGTH = 300
_EXAMINED = 50_000

_COMPILER_ERROR = re.compile(r"^.*?\b(?:fatal )?error: (.+)$", re.MULTILINE)


def normalise_message(text: str) -> str:
    """Return `text` without what depends on one graph, machine or run; applying it twice adds
    nothing.
    """
    previous = None
    while text != previous:
        previous, text = text, _normalise_once(text)
    return text


def is_compiler_output(text: str) -> bool:
    """Return True if this is torch._inductor.exc.CppCompileError's text, alone or inside
    another's.
    """
    return "C++ compile error" in text and "\nOutput:" in text


def without_numbers_of_names(message: str) -> str:
    """Return a compiler's message in which the numbers of generated names are gone, those of types
    stay.

    Inductor numbers its accumulators and their parts by the order of the graph: `tmp_acc0_vec`.
    """
    return _NUMBERED_NAME.sub(lambda match: re.sub(r"\d+", "N", match[0]), message)


def without_homes_of_objects(message: str) -> str:
    """Return a message in which a class of the program has no module, and a module no children.

    A program that was put together has its classes in `__main__`, and leaves out submodules.
    """
    return _CHILDREN.sub(r"\1(...)", _CLASS.sub(r"<class '\1'>", message))


_CLASS = re.compile(r"<class '(?!torch\.|builtins\.)(?:\w+\.)+(?:<locals>\.)?(\w+)'>")
# `Block(`, a line for each child, and `)`, if the message goes on as far as that.
_CHILDREN = re.compile(r"\b(\w+)\([^()\n]*(?:\n[ \t]+\(\w+\): [^\n]*|\n[ \t]*\))+")
_NUMBERED_NAME = re.compile(
    r"\b(?!(?:u?int|b?float|half|double|complex|long|short|char)\d)[A-Za-z_]+\d\w*"
)


def strip_hashes(module: str) -> str:
    """Return a module's name without the parts that are the hash of generated code."""
    return ".".join(part for part in module.split(".") if not _HASHED.fullmatch(part))


_HASHED = re.compile(r"[a-z2-7]{40,}|[0-9a-f]{16,}")


def _normalise_once(text: str) -> str:
    if is_compiler_output(text):
        text = _first_error(text)
    text = own_message(text)[:_EXAMINED]
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    lines = [" ".join(line.split())[:_LINE_LENGTH].rstrip() for line in text.splitlines()]
    return "\n".join([line for line in lines if line][:_LINES])


def _first_error(text: str) -> str:
    """Return the first error of a compiler's output; warnings and the command are noise."""
    output = text.partition("\nOutput:")[2]
    match = _COMPILER_ERROR.search(output)
    return match[1] if match else output


def own_message(text: str) -> str:
    """Return the words of an exception itself, less those that torch adds before and after it."""
    while match := _PREFIX.match(text):
        text = text[match.end() :]
    text = _EXCERPT.sub(r"\1", _last_of_traceback(text))
    end = _ENDS.search(text)
    return text[: end.start()] if end else text


def _last_of_traceback(text: str) -> str:
    """Return the type and text of the last exception, where all of `text` is a traceback."""
    if not _OF_WORKER.match(text):
        return text
    lines = text.rpartition(_TRACEBACK)[2].splitlines(keepends=True)
    return "".join(dropwhile(lambda line: line[0].isspace(), lines))
