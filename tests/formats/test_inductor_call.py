"""The call of Inductor from a stranger's store: every argument is of its type, or it is refused."""

import pytest

from torchreel.errors import RefusedError
from torchreel.formats.checkpoints.inductor_call import (
    decode_arguments,
    decode_graph_name,
    encode_arguments,
)
from torchreel.store.documents.jsontypes import Json

CODE = "__import__('os').system('true')"


def test_arguments_are_read_as_they_were_written() -> None:
    given = {"static_input_idxs": (0, 2), "is_backward": True, "graph_id": 3, "layout_opt": None}
    assert decode_arguments(encode_arguments(given)) == {**given, "static_input_idxs": [0, 2]}


@pytest.mark.parametrize("key", ["cpp_wrapper", "cudagraphs", "layout_opt", "is_backward"])
def test_a_text_is_no_switch(key: str) -> None:
    """Inductor would take it for True, and run the C++ compiler for `cpp_wrapper`."""
    with pytest.raises(RefusedError, match="not of its type"):
        decode_arguments({key: CODE})


def test_an_argument_that_inductor_does_not_have_is_left_out() -> None:
    assert decode_arguments({"extern_node_serializer": CODE}) == {}


def test_the_name_of_a_graph_stays_a_name() -> None:
    assert decode_graph_name(["2_inference"]) == ["2_inference"]
    assert decode_graph_name(None) is None


@pytest.mark.parametrize("name", [["0_forward/tmp/x.so"], [CODE], ["a\n"], [""], "0_forward", [1]])
def test_no_other_text_gets_into_the_program_that_inductor_writes(name: Json) -> None:
    with pytest.raises(RefusedError, match="the name of a graph is not of its type"):
        decode_graph_name(name)
