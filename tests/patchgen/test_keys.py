"""What became of a model's parameters between two versions of a library: transformers itself, with one file changed."""

import json
from pathlib import Path

from omni_kit.patchgen.keys import KeyDrift, key_drift, write_rename_maps
from omni_kit.pysource.library import Library, find_library

MODULE = "transformers.models.olmoe.modeling_olmoe"


def changed(newer: Path, *edits: tuple[str, str]) -> KeyDrift:
    file = newer / "models" / "olmoe" / "modeling_olmoe.py"
    text = file.read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    (found,) = key_drift([MODULE], find_library("transformers"), Library("transformers", newer))
    return found


def test_the_same_version_has_the_same_keys(newer: Path) -> None:
    found = changed(newer)
    assert (found.model_type, found.class_name, found.same) == ("olmoe", "OlmoeForCausalLM", True)
    assert found.summary == "unchanged"


def test_a_parameter_of_its_own_shape_is_known_by_it(newer: Path) -> None:
    found = changed(newer, ("self.gate = ", "self.router = "), ("self.gate(", "self.router("))
    assert found.renamed == {"model.layers.*.mlp.gate.weight": "model.layers.*.mlp.router.weight"}
    assert (found.removed, found.added, found.same) == ([], [], False)


def test_several_of_one_shape_are_never_paired_by_their_places(newer: Path) -> None:
    """Queries and outputs are square: which is which, shapes do not say."""
    found = changed(newer, ("self.q_proj = ", "self.query = "), ("self.o_proj = ", "self.output = "))
    assert found.renamed == {}
    assert {name.rpartition("self_attn.")[2] for name in found.removed} == {"q_proj.weight", "o_proj.weight"}
    assert {name.rpartition("self_attn.")[2] for name in found.added} == {"query.weight", "output.weight"}


def test_the_same_last_words_are_the_same_parameter(newer: Path) -> None:
    found = changed(newer, ("self.self_attn = ", "self.attention = "))
    assert found.renamed["model.layers.*.self_attn.q_proj.weight"] == "model.layers.*.attention.q_proj.weight"
    assert len(found.renamed) == 6
    assert (found.removed, found.added) == ([], [])


def test_another_shape_is_said(newer: Path) -> None:
    found = changed(
        newer, ("self.lm_head = nn.Linear(config.hidden_size,", "self.lm_head = nn.Linear(2 * config.hidden_size,")
    )
    ((name, then, now),) = found.reshaped
    assert (name, [then[0], 2 * (then[1] or 0)]) == ("lm_head.weight", now)


def test_maps_for_saved_checkpoints(newer: Path, tmp_path: Path) -> None:
    found = changed(newer, ("self.gate = ", "self.router = "), ("self.gate(", "self.router("))
    (file,) = write_rename_maps([found, KeyDrift("other")], tmp_path)
    said = json.loads(file.read_text(encoding="utf-8"))
    assert said["model"] == found.renamed
    assert said["optimizer"] == {"state.model.layers.*.mlp.gate.weight.*": "state.model.layers.*.mlp.router.weight.*"}
