"""The patches of a media model: upstream's own text, with a door for what VeOmni's data pipeline passes."""

import ast
from collections.abc import Iterator, Sequence

from omni_kit.pysource.nodes import without_docstring
from omni_kit.targets.protocol import Decision
from omni_kit.targets.veomni.media.dummies import Dummy, dummies_of
from omni_kit.targets.veomni.media.merging import POSITIONS, Features, Merging, mask_dropped
from omni_kit.targets.veomni.text.editing import Edit, edited, renamed, snake
from omni_kit.targets.veomni.text.patches import Patch
from omni_kit.upstream.transformers.models import UpstreamModel

IMPORTED = ("collate_infos", "collate_metadata", "from_pipeline", "positions_of", "sounds_of", "tower_arguments")
"""Names that the generated module imports from the integration's `media` module."""


def media_patches(model: UpstreamModel, merging: Merging, *, merged: bool) -> Iterator[Patch]:
    """Yield the method that merges, and what VeOmni asks a model with media for.

    Args:
        merged: another patch has the edits of the method that merges.
    """
    if not merged:
        yield _merging_patch(model, merging)
    head = model.class_name
    yield from _tying_patch(model)
    yield Patch(
        "override_method",
        f"{head}.get_position_id_func",
        "Added: VeOmni's data pipeline computes positions with it in its worker processes",
        f"""def {snake(head)}_get_position_id_func(self):
    return positions_of({merging.owner}, self.config)
""",
    )
    yield Patch(
        "override_method",
        f"{head}.get_extra_collate_infos",
        "Added: how VeOmni's collator joins the media of several samples",
        f"""def {snake(head)}_get_extra_collate_infos(self):
    return collate_infos()
""",
    )
    yield Patch(
        "override_method",
        f"{head}.get_metadata_collate_func",
        "Added: VeOmni's collator counts placeholders with it",
        f"""def {snake(head)}_get_metadata_collate_func(self):
    return collate_metadata
""",
    )


def _tying_patch(model: UpstreamModel) -> Iterator[Patch]:
    """The text config says what the whole says of ties: VeOmni ties where both say so, transformers where this does."""
    source, head = model.source, model.class_name
    init = source.method(head, "__init__")
    if init is None or init not in source.classes[head].body or not model.skeleton.tieable:
        return
    if not all(map(model.built_config.has, ("text_config", "tie_word_embeddings"))) or len(init.body) < 2:
        return
    block = """# Modification: VeOmni ties embeddings where the config of the text says so, too.
config.get_text_config(decoder=True).tie_word_embeddings = config.tie_word_embeddings"""
    text = edited(source, init, [Edit.before(source, init.body[1], block)])
    description = "embeddings are tied if the top-level config says so"
    yield Patch("override_method", f"{head}.__init__", description, renamed(text, "__init__", f"{snake(head)}_init"))


def media_decisions(model: UpstreamModel, merging: Merging) -> Iterator[Decision]:
    """Yield the decisions on each kind of media, and on positions."""
    if (dropped := mask_dropped(model)) is not None:
        yield Decision("tower attention", "torch attention", *dropped)
    where, dummies = model.source.where, {one.kind: one for one in dummies_of(model, merging)}
    for one in merging.features:
        what = f"{one.kind} features {merging.owner}.forward"
        if one.placed is None:
            reason = "how they are merged into the embeddings is unknown: upstream's code places all of them"
            yield Decision(what, "upstream", reason, where(one.call))
        else:
            reason = f"{one.name} goes to the process with its placeholders"
            yield Decision(what, "patch", reason, where(one.placed))
        if one.padded:
            reason = "transformers makes no masks of padding for VeOmni's attention: its tower uses torch's"
            yield Decision(f"{one.kind} padding", "torch attention", reason, where(one.call))
        dummy = dummies.get(one.kind)
        reason = f"made of {', '.join(dummy.inputs)}" if dummy else "the tower's smallest input is unknown"
        yield Decision(f"{one.kind} dummy", "generate" if dummy else "none", reason, where(one.call))
    choice = "generate" if merging.positions else "plain"
    reason = f"{merging.owner}.{POSITIONS} runs without weights" if merging.positions else "one number for each token"
    yield Decision("position ids", choice, reason, where(merging.forward))


def _merging_patch(model: UpstreamModel, merging: Merging) -> Patch:
    text = edited(model.source, merging.forward, merging_edits(model, merging))
    return Patch(
        "override_method",
        f"{merging.owner}.forward",
        "VeOmni's masks of placeholders, dummy media, and each process's own features",
        renamed(text, "forward", f"{snake(merging.owner)}_forward_patched"),
    )


def merging_edits(model: UpstreamModel, merging: Merging) -> list[Edit]:
    """Return the edits of the method that merges."""
    source, forward = model.source, merging.forward
    assert forward.args.kwarg is not None
    rest = forward.args.kwarg.arg
    door = _door(merging, dummies_of(model, merging), rest)
    edits = [Edit.before(source, without_docstring(forward.body)[0], door)]
    for one in merging.features:
        edits += _own(model, one, rest)
        edits += _apart(model, one) if merging.shared else ()
    return edits


def _door(merging: Merging, dummies: Sequence[Dummy], rest: str) -> str:
    taken = {argument.arg for argument in merging.forward.args.args}
    positions = "position_ids" if "position_ids" in taken else "None"
    target = positions if positions != "None" else "_"
    lines = [
        "# Modification: VeOmni's pipeline blanks placeholders and passes masks of them; see media.py.",
        f'metadata = {rest}.pop("multimodal_metadata", None)',
        f"media, input_ids, {target}, {rest} = from_pipeline(self, input_ids, {positions}, {rest}, metadata)",
    ]
    if merging.positions:
        lines += [
            f"if {positions} is None and media.sp_enabled:",
            '    raise ValueError("each process has a part of the tokens: the data pipeline must pass position_ids")',
        ]
    if {"input_features", "feature_attention_mask", "audio_feature_lengths"} <= taken:
        lines += [
            "if audio_feature_lengths is not None and feature_attention_mask is None:",
            "    input_features, feature_attention_mask = sounds_of(input_features, audio_feature_lengths)",
        ]
    for one in dummies:
        names = list(one.inputs)
        lines += [
            f'if {names[0]} is None and media.needs_dummy("{one.kind}"):',
            f'    {", ".join(names)}{"," if len(names) == 1 else ""} = media.dummy("{one.kind}")',
        ]
    return "\n".join(lines)


def _own(model: UpstreamModel, one: Features, rest: str) -> Iterator[Edit]:
    """Towers get no bounds of texts, and each process places its own features."""
    source = model.source
    for keyword in one.call.keywords:
        if keyword.arg is None and ast.unparse(keyword.value) == rest:
            yield Edit.at(source, keyword.value, f"tower_arguments({rest})")
    if one.placed is None:
        return
    placing = f'{one.name} = media.own("{one.kind}", {one.name})'
    if one.blocks:
        placing += f"\nif {one.name}.dim() == 2:\n    {one.name} = {one.name}[:, None]  # each is a block of its own"
    yield Edit.before(source, one.placed, placing)
    for name, statement in one.layers:
        value = ast.unparse(statement)
        own = f'{name} = [media.own("{one.kind}", layer) for layer in {name}]'
        yield Edit.lines(source, statement, statement, f"{value}\n{own}")


def _apart(model: UpstreamModel, one: Features) -> Iterator[Edit]:
    """A dummy has no placeholder, although another kind of media may have stood for the same one."""
    for node in ast.walk(one.placed) if one.placed is not None else ():
        if isinstance(node, ast.Name) and node.id == "input_ids":
            yield Edit.at(model.source, node, f'media.ids("{one.kind}", input_ids)')
