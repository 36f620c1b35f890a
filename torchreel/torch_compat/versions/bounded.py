"""The names of torch that not all known releases have, besides those of the recorder's probes.

Lives here: their declarations, each with the reason why nothing is lost without it. Not here: the
names that all known releases have, which the source itself tells (`used`); names that a probe
replaces and that are asked for by declaration (`names`), which stand where they are used.
"""

from torchreel.torch_compat.versions.names import TorchName

BOUNDED = (
    TorchName(
        "torch._higher_order_ops.passes.inline_invoke_subgraph",
        "inline_single_use_invoke_subgraph",
        "inlines regions that are used once; reached by the config entry of the same name alone",
        since="2.13",
    ),
)
