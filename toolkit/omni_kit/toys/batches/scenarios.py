"""Call scenarios of a language model, and its outputs in each: the same code on either side."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from omni_kit.plurals import counted
from omni_kit.toys.batches.protocol import CallScenario, Preparation
from omni_kit.toys.batches.scenes import SCENES, Rows, with_kinds
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import generator

Arguments = Mapping[str, Any]
_IGNORED = -100
_ROWS, _LENGTH, _AWAY = 2, 12, 4
_LONG, _NEW, _KEPT = 300, 3, 3
_ROUTER = "output_router_logits"
_RECORDED = ("output_hidden_states", "output_attentions", _ROUTER)
_GRADIENT = "gradient."
_SWITCHED: Mapping[str, Rows] = {"text alone": ("L",), "an image": ("TIT",)}
_SWITCHES: Mapping[str, Any] = {**dict.fromkeys(_RECORDED, True), "logits_to_keep": _KEPT}
# What is asked of a model that reads media; anything else depends on who has made the positions.
_COMPARED = ("logits", "aux_loss", *(switch.removeprefix("output_") for switch in _RECORDED))


def text_ways(model: Any, tokens: list[int]) -> Iterator[CallScenario]:
    """Yield every way that the model's forward has arguments for.

    Args:
        model: upstream's, whose signature and config say what there is.
        tokens: ids to draw from.
    """
    takes = inspect.signature(model.forward).parameters
    text = _drawn(tokens, _ROWS, _LENGTH)
    labels = {**text, "labels": text["input_ids"].clone()}
    yield CallScenario("without labels", text)
    yield CallScenario("evaluation", text, training=False)
    if "logits_to_keep" in takes:
        yield CallScenario("logits_to_keep 1", text, {"logits_to_keep": 1})
        yield CallScenario(f"logits_to_keep {_KEPT}", text, {"logits_to_keep": _KEPT})
    for switch in _RECORDED:
        if switch in takes or hasattr(model.config, switch):
            yield CallScenario(switch, text, {switch: True})
    yield CallScenario("return_dict=False", text, {"return_dict": False})
    yield from _labelled(labels, takes)
    yield from _lengths(tokens)
    yield from _padded(text)
    yield CallScenario("inputs_embeds", text, embedded=True)
    yield from _attending(labels)
    # Without the loss that balances experts: upstream's counts the tokens of a cache that are no longer there.
    alone = {"output_router_logits": False} if "output_router_logits" in takes else {}
    row = {name: tensor[:1] for name, tensor in text.items()}
    yield CallScenario("cache", text, {**alone, "use_cache": True}, training=False, new=_NEW)
    yield CallScenario("generate", row, alone, training=False, generated=_NEW)


def media_ways(batch: Callable[[Rows], Tensors], kinds: str, model: Any = None) -> Iterator[CallScenario]:
    """Yield every scene with the media that a model takes, prepared in each form; and one with every switch.

    Args:
        batch: makes what stands in rows.
        kinds: the letters of these media.
        model: upstream's, whose signature and config say which switches there are; None for no switch.
    """
    for name, rows in SCENES.items():
        if with_kinds(rows, kinds):
            inputs = batch(rows)
            for fed in _forms(rows):
                yield CallScenario(
                    f"{name}, {fed}", inputs, backward=True, preparation=fed, bare=fed == Preparation.unprepared
                )
    for name, rows in _SWITCHED.items() if model is not None else ():
        yield from prepared_ways(name, batch(rows), model)


def prepared_ways(name: str, batch: Tensors, model: Any) -> Iterator[CallScenario]:
    """Yield one sample with every switch that upstream's model has, prepared as the framework prepares it.

    What the config switches on by itself is also switched off.
    """
    takes = inspect.signature(model.forward).parameters
    inputs = {key: value for key, value in batch.items() if key != "labels"}
    on = [(switch, False) for switch in _RECORDED if getattr(model.config, switch, None) is True]
    for switch, value in (*_SWITCHES.items(), *on):
        if _has_switch(model, switch, takes):
            yield CallScenario(
                f"{name}, {switch} {value}", inputs, {switch: value}, preparation=Preparation.alone, compared=_COMPARED
            )


def text_beside_media(model: Any, tokens: list[int]) -> Iterator[CallScenario]:
    """Return the text scenarios of a model that also reads media; its outputs are requested by name."""
    for way in text_ways(model, tokens):
        if way.switches.get("return_dict", True):
            yield replace(way, compared=("loss", *_COMPARED), bare=True)


def _has_switch(model: Any, switch: str, takes: Mapping[str, Any]) -> bool:
    """Return a model of several parts hands what is asked of its router down, and names it nowhere."""
    router = switch == _ROUTER and hasattr(model.config.get_text_config(), "router_aux_loss_coef")
    return router or switch in takes or hasattr(model.config, switch)


def _forms(rows: Rows) -> Iterator[Preparation]:
    """Several samples are there to be packed; what is no medium needs no positions of its own."""
    if len(rows) == 1:
        yield Preparation.alone
        if {*rows[0]} - {*"TL"}:
            yield Preparation.unprepared
    yield Preparation.packed


def _labelled(labels: Tensors, takes: Mapping[str, Any]) -> Iterator[CallScenario]:
    ended = {**labels, "labels": labels["labels"].clone()}
    ended["labels"][:, -_AWAY:] = _IGNORED
    yield CallScenario("labels ignored at the end", ended, backward=True)
    alone = {**labels, "labels": torch.full_like(labels["labels"], _IGNORED)}
    alone["labels"][0, 1] = labels["labels"][0, 1]
    yield CallScenario("a single label", alone, backward=True)
    if "output_router_logits" in takes:
        yield CallScenario("output_router_logits with labels", labels, {"output_router_logits": True}, backward=True)
    switches = {"output_router_logits": True} if "output_router_logits" in takes else {}
    unmasked = {name: tensor for name, tensor in labels.items() if name != "attention_mask"}
    yield CallScenario("no attention_mask", unmasked, switches, backward=True)
    yield CallScenario("gradient checkpointing", labels, backward=True, checkpointing=True)


def _lengths(tokens: list[int]) -> Iterator[CallScenario]:
    """Yield one row of one token, of two, and of more than toys' windows and original lengths."""
    for length in (1, 2, _LONG):
        row, many = _drawn(tokens, 1, length), length > 1
        fed = {**row, "labels": row["input_ids"]} if many else row
        yield CallScenario(counted(length, "token"), fed, backward=many)


def _padded(text: Tensors) -> Iterator[CallScenario]:
    """Without labels: what is asked is whether padding changes what is next to it."""
    for where, columns in (("left", slice(0, _AWAY)), ("right", slice(-_AWAY, None)), ("inside", slice(5, 7))):
        mask = text["attention_mask"].clone()
        mask[1, columns] = 0
        yield CallScenario(f"padding {where}", {**text, "attention_mask": mask})


def _attending(labels: Tensors) -> Iterator[CallScenario]:
    """By each implementation of attention that runs on a CPU, with padding; flex attention has no backward there."""
    padded = {**labels, "attention_mask": labels["attention_mask"].clone(), "labels": labels["labels"].clone()}
    padded["attention_mask"][1, :_AWAY] = 0
    padded["labels"][1, : _AWAY + 1] = _IGNORED
    yield CallScenario("sdpa attention", labels, backward=True, attention="sdpa")
    yield CallScenario("padded sdpa attention", padded, backward=True, attention="sdpa")
    plain = {name: tensor for name, tensor in padded.items() if name != "labels"}
    yield CallScenario("padded flex_attention", plain, attention="flex_attention")


def _drawn(tokens: list[int], rows: int, length: int) -> Tensors:
    picks = torch.randint(len(tokens), (rows, length), generator=generator(f"way {rows} {length}"))
    ids = torch.tensor(tokens)[picks]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@dataclass
class _Answers:
    """Everything that one way of calling gives, by name; places that are padding left out."""

    kept: torch.Tensor
    found: Tensors = field(default_factory=dict)

    def add(self, name: str, value: Any) -> None:
        """Take tensors out of whatever an output is made of: tuples, dicts, caches."""
        if isinstance(value, torch.Tensor):
            self.found[name] = self._without_padding(value)
        elif isinstance(value, Mapping):
            for key, one in value.items():
                self.add(f"{name}.{key}".strip("."), one)
        elif hasattr(value, "layers"):  # a cache
            for number, layer in enumerate(value.layers):
                self.add(f"{name}.{number}", {key: getattr(layer, key, None) for key in ("keys", "values")})
        elif isinstance(value, (list, tuple)):
            for number, one in enumerate(value):
                self.add(f"{name}.{number}".strip("."), one)

    def _without_padding(self, value: torch.Tensor) -> torch.Tensor:
        """A model may answer anything at padding."""
        if bool(self.kept.all()):
            return value
        if value.shape[:2] == self.kept.shape:
            return value[self.kept]
        return value[self.kept.flatten()] if value.shape[:1] == (self.kept.numel(),) else value


def answered(
    model: Any,
    way: CallScenario,
    forward: Callable[[], Tensors] | None = None,
    prepare: Callable[[], Arguments] | None = None,
) -> Tensors:
    """Return a model's outputs in a scenario: every tensor, and gradients if they are requested.

    A model that is given labels need not give logits: kernels for the loss never make them.

    Args:
        forward: of samples that have to be prepared, their answers with the loss.
        prepare: of one of them, the arguments of a forward of `model`.
    """
    model.train(way.training)
    try:
        if way.preparation and way.switches and prepare is not None:
            return _switched(model, way, prepare())
        if way.preparation and forward is not None:
            return _prepared(model, forward())
        with _checkpointed(model, way.checkpointing), torch.set_grad_enabled(way.backward):
            return _asked(model, way)
    finally:
        model.train()


def answered_whole(model: Any, way: CallScenario, forward: Callable[[], Tensors]) -> Tensors:
    """Run a scenario as `answered` does, for a model that always returns a batch's outputs with its `loss`."""
    model.train(way.training)
    try:
        with _checkpointed(model, way.checkpointing), torch.set_grad_enabled(way.backward):
            answer = forward()
        return _prepared(model, answer) if way.backward else dict(answer)
    finally:
        model.train()


def _switched(model: Any, way: CallScenario, called: Arguments) -> Tensors:
    with torch.no_grad():
        answer = model(**{**called, **way.switches, "use_cache": False})
    answers = _Answers(torch.ones(1, 1, dtype=torch.bool))
    answers.add("", _named(answer, way.compared))
    for switch in way.switches.keys() & {*_RECORDED}:
        there = answer.get(switch.removeprefix("output_")) is not None
        answers.found[f"whether it has {switch}"] = torch.tensor(float(there))
    return answers.found


def _named(answer: Mapping[str, Any], compared: Sequence[str]) -> Mapping[str, Any]:
    return {name: value for name, value in answer.items() if not compared or name in compared}


def _prepared(model: Any, answer: Tensors) -> Tensors:
    answers = _Answers(torch.ones(1, 1, dtype=torch.bool), dict(answer))
    _with_gradients(model, answer["loss"], answers)
    return {name: tensor.detach() for name, tensor in answers.found.items()}


def _asked(model: Any, way: CallScenario) -> Tensors:
    fed = {**way.inputs, **way.switches}
    if way.embedded:
        fed["inputs_embeds"] = model.get_input_embeddings()(fed.pop("input_ids"))
    answers = _Answers(way.inputs.get("attention_mask", torch.ones_like(way.inputs["input_ids"])).bool())
    if way.generated:
        ids = model.generate(**fed, max_new_tokens=way.generated, do_sample=False, pad_token_id=0, eos_token_id=None)
        answers.add("tokens", ids)
        return answers.found
    answer = model(**fed if "use_cache" in fed else {**fed, "use_cache": False})
    answers.add("", _named(answer, way.compared) if hasattr(answer, "items") else answer)
    if way.new:
        _continued(model, way, answer, answers)
    if way.backward:
        _with_gradients(model, answer.loss, answers)
    found = {name: tensor.detach() for name, tensor in answers.found.items()}
    if "labels" in way.inputs:
        found.pop("logits", None)
    return found


def _continued(model: Any, way: CallScenario, answer: Any, answers: _Answers) -> None:
    """Further tokens, one at a time, each next to the cache of those before it."""
    mask, ids = way.inputs["attention_mask"], way.inputs["input_ids"]
    for number in range(way.new):
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], -1)
        token = ids[:, number : number + 1]
        fed = {"input_ids": token, "attention_mask": mask, "past_key_values": answer.past_key_values}
        answer = model(**{**fed, **way.switches})
        answers.found[f"logits of token {number}"] = answer.logits


def _with_gradients(model: Any, loss: torch.Tensor, answers: _Answers) -> None:
    model.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and bool(parameter.grad.any()):
            answers.found[f"{_GRADIENT}{name}"] = parameter.grad.clone()
    model.zero_grad(set_to_none=True)


@contextmanager
def _checkpointed(model: Any, on: bool) -> Iterator[None]:
    """The model checkpoints its layers while this is entered; transformers and diffusers call it in their own words."""
    ours = hasattr(model, "gradient_checkpointing_enable")
    if on and ours:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    elif on:
        model.enable_gradient_checkpointing()
    try:
        yield
    finally:
        if on and ours:
            model.gradient_checkpointing_disable()
        elif on:
            model.disable_gradient_checkpointing()
