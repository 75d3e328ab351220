"""The candidate side of a VeOmni comparison: builds, loads and saves as VeOmni's trainers do, in one process."""

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import distributed, nn

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.targets.references.attention import attention_recorded, attention_used
from omni_kit.targets.sides import AttentionCalls, KernelCall, KernelChoice, Mesh, Slot, TrainingRun
from omni_kit.targets.veomni.model_dir import located
from omni_kit.targets.veomni.replaced import lost_by
from omni_kit.targets.veomni.runtime import trainer
from omni_kit.targets.veomni.runtime.arguments import arguments, packed, repacked, without_positions
from omni_kit.targets.veomni.runtime.attention import (
    packed_attention_used,
    takes_flash,
    use_packed_attention,
    window_in_dispute,
)
from omni_kit.targets.veomni.runtime.branches import architecture_of, assumed, branches_of, lacking, registered
from omni_kit.targets.veomni.runtime.compiling import SETTING, compile_choice, decoder_calls, select_blocks
from omni_kit.targets.veomni.runtime.converting import stored_tensors
from omni_kit.targets.veomni.runtime.grouped import select_grouped_experts, use_grouped_experts
from omni_kit.targets.veomni.runtime.hooks import INDEX, faults_of
from omni_kit.targets.veomni.runtime.kernel_calls import caught_calls
from omni_kit.targets.veomni.runtime.kernels import PLACE, bind, bring_kernels, built_in, choices_of, eager_operations
from omni_kit.targets.veomni.runtime.lora import Adapters
from omni_kit.targets.veomni.runtime.loss_arguments import lost_arguments
from omni_kit.targets.veomni.runtime.processor import STAND_IN, write_processor
from omni_kit.targets.veomni.runtime.registered_heads import head_faults
from omni_kit.targets.veomni.runtime.routers import router_faults
from omni_kit.targets.veomni.runtime.saving import cast_stored_buffers, cast_while_saved, changed_in_checkpoint
from omni_kit.targets.veomni.runtime.slots import ATTENTION, calls_seen, filled, find_slots
from omni_kit.targets.veomni.runtime.stand_ins import stand_ins_used
from omni_kit.targets.veomni.runtime.text_runs import TextRuns
from omni_kit.targets.veomni.runtime.train import begin, expert_kernel, meshes_of, shard, step, without_router_loss
from omni_kit.toys.batches.language import language_model, sees, speaker_of
from omni_kit.toys.batches.protocol import Batch, CallScenario, Preparation
from omni_kit.toys.batches.scenarios import answered
from omni_kit.toys.batches.vision import samples_of
from omni_kit.toys.tensors import Tensors

_SHARDS = 3


class VeOmniBuilder:
    """Builds through MODELING_REGISTRY and `build_foundation_model`, with every kernel slot on its eager form."""

    def __init__(self) -> None:
        self._device = "cpu"
        self._import_name = ""
        self._path = Path()
        self._notes: list[str] = []
        self._restored = ""
        self._built: tuple[Path, str, Mapping[str, str]] = (Path(), "", {})

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Imports the model directory.

        Args:
            options: the fields of a ModelDir; `registered` are the keys that it must register; `device`; and `alone`:
                false where the launcher of several processes joins them itself.

        Raises:
            BadInput: the import leaves a key to somebody else, or finds another package of that name.
        """
        sys.path.insert(0, options["sys_path"])
        self._device = options.get("device", "cpu")
        if options.get("alone", True):
            _one_process(self._device)
        stand_ins_used()  # of a model that was compared before in this process
        from omni_kit.targets.veomni.runtime.framework import MODELING_REGISTRY, RESTORED, veomni

        self._restored = RESTORED
        directory = Path(options["path"])
        self._import_name, self._path = str(options["import_name"]), directory
        self._training_files = str(options.get("training_files", ""))  # who does not train has none
        if options["style"] == "in-tree":
            _forget_overrides(MODELING_REGISTRY, options["registered"])
        module = importlib.import_module(options["import_name"])
        if (found := Path(str(module.__file__)).resolve().parent) != directory:
            raise BadInput(f"importing {options['import_name']} gives {found}, not {directory}")
        if lost := lost_by(located(directory, dict.fromkeys(options["registered"], 1))):
            self._notes.append(f"the plugin replaces VeOmni's own integration, and with it {', '.join(lost)}")
        for key in options["registered"]:
            _check_registered(MODELING_REGISTRY, key, options["import_name"])
        return {"library": "veomni", "version": getattr(veomni, "__version__", "unknown")}

    def shapes(self, config_dir: Path) -> dict[str, list[int]]:
        """Build the model on the meta device, by VeOmni's own entry point."""
        model = self._build(config_dir, None, "meta")
        return {name: list(tensor.shape) for name, tensor in model.state_dict().items()}

    def load(self, checkpoint: Path, dtype: str = "float32") -> nn.Module:
        """Load with VeOmni's own loader.

        Raises:
            BadInput: it left a tensor without storage.
        """
        model = self._build(checkpoint, checkpoint, self._device, dtype)
        if left := [name for name, tensor in model.state_dict().items() if tensor.is_meta]:
            raise BadInput(f"VeOmni's loader left {left[0]} without storage")
        if kept := cast_stored_buffers(model, getattr(torch, dtype)):
            self._notes.append(kept)
        return cast(nn.Module, model.train())

    def converted(self, config_dir: Path, published: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        """By the converter and the hook for indexes that VeOmni's loader finds on the model; see `Converting`.

        Raises:
            BadInput: the index names other tensors than the converter gives.
        """
        from veomni.models.checkpoint_tensor_loading import (
            get_checkpoint_tensor_converter,
            maybe_convert_checkpoint_tensor,
            maybe_convert_fqn_to_index_mapping,
        )
        from veomni.models.module_utils import _convert_weight_key

        model = self._build(config_dir, None, "meta")
        converter, found = get_checkpoint_tensor_converter(model), dict[str, list[int]]()
        for name, shape in published.items():
            empty = torch.empty(tuple(shape), device="meta")
            one = maybe_convert_checkpoint_tensor(_convert_weight_key(name, model), empty, converter)
            found |= {one.name: list(one.tensor.shape)} if one is not None else {}
        for one in converter.finalize() if converter is not None else ():
            found[one.name] = list(one.tensor.shape)
        indexed = maybe_convert_fqn_to_index_mapping(dict.fromkeys(published, 1), model) or {}
        if strange := sorted(indexed.keys() ^ found.keys()):
            raise BadInput(
                f"the index of shards and the converter disagree on {len(strange)} names, {strange[0]} first"
            )
        return found

    def save(self, model: Any, checkpoint: Path, out: Path) -> None:
        """Exports as the trainers do: only what the converted index of the checkpoint names; but in float32.

        Raises:
            BadInput: a distributed checkpoint, from which trainers resume, gives something back otherwise.
        """
        from veomni.models.checkpoint_tensor_loading import (
            parse_fqn_to_index_mapping_from_json,
            resolve_fqn_to_index_mapping_for_save,
        )
        from veomni.models.module_utils import save_model_weights

        state = model.state_dict()
        index = checkpoint / INDEX
        if index.is_file():
            exported = (
                resolve_fqn_to_index_mapping_for_save(model, parse_fqn_to_index_mapping_from_json(str(index))) or {}
            )
            state = {name: tensor for name, tensor in state.items() if name in exported}
        size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
        save_model_weights(str(out), state, save_dtype="float32", shard_size=max(1, size // _SHARDS))
        (out / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
        if cast_by_saver := cast_while_saved(model):
            self._notes.append(cast_by_saver)
        if changed := changed_in_checkpoint(model, out.with_name(f"{out.name}_distributed")):
            raise BadInput(changed)

    def forward(self, model: nn.Module, inputs: Tensors, loss_only: bool = False) -> Tensors:
        """Logits and losses, fed as VeOmni's pipeline feeds; see `language_model`."""
        return language_model(model, inputs, arguments, loss_only)

    def answer(self, model: nn.Module, way: CallScenario) -> Tensors:
        """Return everything that the part of it that answers in text gives; samples as pipeline and collator
        hand them.
        """
        part = speaker_of(model)
        if way.preparation != Preparation.packed:
            feed = without_positions if way.preparation == Preparation.unprepared else arguments
            if way.switches:
                return answered(model, way, prepare=lambda: feed(model, way.inputs))
            with attention_used(model, way.attention):
                return answered(part, way, lambda: language_model(model, way.inputs, feed))
        if why := window_in_dispute(model):
            raise MissingRequirement(why)
        with packed_attention_used(model) if takes_flash(model) else nullcontext():
            return answered(part, way, lambda: language_model(model, way.inputs, packed, together=True, routed=False))

    def attention(self, model: nn.Module) -> AbstractContextManager[AttentionCalls]:
        """Watches the calls of attention functions while it is entered."""
        return attention_recorded(model)

    def notes(self) -> list[str]:
        """Return the stand-ins used since the last request."""
        found = [*filter(None, [self._restored]), *stand_ins_used(), *filter(None, self._notes)]
        self._notes, self._restored = [], ""
        return found

    def branches(self, checkpoint: Path) -> Mapping[str, str]:
        """Return VeOmni's constants that say which device is there, as the registered functions know them."""
        model = self._build(checkpoint, None, "meta")
        functions = registered(model)
        return {name: lacking(functions, name, architecture_of(model)) for name in branches_of(functions)}

    def load_on(self, branch: str, checkpoint: Path) -> nn.Module:
        """Return the class that is registered for another device, with every kernel slot on its eager form."""
        with assumed(registered(self._build(checkpoint, None, "meta")), branch):
            return self.load(checkpoint)

    def hooks(self, checkpoint: Path, inputs: Tensors) -> tuple[list[str], list[tuple[str, str]]]:
        """Return the hooks that VeOmni looks up on a model; they call no model with storage."""
        model = self._build(checkpoint, None, "meta")
        called, wrong = faults_of(model, checkpoint)
        heads = head_faults(model, checkpoint, lambda place: self._build(place, None, self._device, "float32"))
        return called, [*wrong, *(("what is registered", said) for said in heads)]

    def adapters(self, checkpoint: Path, inputs: Tensors, folder: Path) -> tuple[list[str], list[str]]:
        """By VeOmni's own LoRA, which its trainers use."""
        return Adapters(
            lambda: self.load(checkpoint),
            lambda model: language_model(model, inputs, arguments, loss_only=True)["loss"],
            folder,
            [name for name, _ in stored_tensors(checkpoint)],
        ).tried()

    def slots(self, config_dir: Path) -> Sequence[Slot]:
        """Return the slots that the integration's modeling declares, and what can be bound there."""
        model = self._build(config_dir, None, "meta")
        return find_slots(model, self._import_name, window_in_dispute(model))

    def load_with(self, checkpoint: Path, slot: str, kernel: str, dtype: str = "float32") -> nn.Module:
        """Load with a kernel in one slot; attention gets sequences packed into one, as its kernels want them."""
        calls_seen()  # of an earlier model
        with filled(slot, kernel):
            model = self.load(checkpoint, dtype)
        if slot == ATTENTION:
            use_packed_attention(model)
        return model

    def forward_with(self, model: nn.Module, slot: str, inputs: Tensors) -> Tensors:
        """Run forward; packed if the slot is that of attention."""
        return language_model(model, inputs, packed if slot == ATTENTION else arguments)

    def calls(self) -> dict[str, list[str]]:
        """The calls of kernels since the last question."""
        return calls_seen()

    def lost_arguments(self, model: nn.Module, inputs: Tensors) -> list[str]:
        """Of VeOmni's loss, with each head's slot filled and without, and of routers; of media, the first sample."""
        part = speaker_of(model)
        batch = samples_of(inputs)[0] if "mm_token_type_ids" in inputs else inputs
        fed = {**arguments(model, batch), "labels": batch["labels"]}
        return [*lost_arguments(part, fed), *router_faults(part, fed)]

    def settings_place(self) -> Sequence[str]:
        """Return the path of settings in VeOmni's arguments."""
        return PLACE

    def choices(self, config_dir: Path) -> Sequence[KernelChoice]:
        """Return what VeOmni's settings can choose for the model, and the kernels that omni-kit brings."""
        bring_kernels()
        model = self._build(config_dir, None, "meta")
        kernels = choices_of(model, self.slots(config_dir))
        return [*kernels, *compile_choice(model, kernels)]

    def sized(self, config_dir: Path, dtype: str) -> nn.Module:
        """With every slot on its eager form."""
        return self._sized(config_dir, dtype, {})

    def choose(self, model: nn.Module, chosen: Mapping[str, str]) -> nn.Module:
        """Binds again; builds again where a slot is asked only while a model is built."""
        config_dir, dtype, before = self._built
        fixed = built_in(sys.modules[type(model).__module__])
        if any(chosen.get(setting) != before.get(setting) for setting in fixed & {*chosen, *before}):
            model = self._sized(config_dir, dtype, chosen)
        bind(model, eager_operations(**{name: kernel for name, kernel in chosen.items() if name != SETTING}))
        if SETTING in chosen:
            select_blocks(model, chosen)
        return model

    def batch(self, model: nn.Module, inputs: Tensors) -> Mapping[str, Any]:
        """Return all sequences packed into one row, as VeOmni's collator makes it."""
        return {**packed(model, inputs), "use_cache": False}

    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> torch.Tensor:
        """Return the model's own."""
        return cast(torch.Tensor, cast(Any, model)(**batch).loss)

    def kernel_calls(self, model: nn.Module, setting: str, inputs: Tensors) -> Sequence[KernelCall | str]:
        """Of the kernels that are bound; plain code is no kernel, and is not called so."""
        if setting == SETTING:
            rows = [{**row, "use_cache": False} for row in repacked(model, inputs)]
            return decoder_calls(model, [partial(self._step, model, row) for row in rows])
        batch = self.batch(model, inputs)
        found = caught_calls(model, setting, lambda: self.loss(model, batch))
        calls_seen()
        return found

    def _step(self, model: nn.Module, batch: Mapping[str, Any]) -> None:
        torch.autograd.backward(self.loss(model, batch))
        model.zero_grad(set_to_none=True)

    def _sized(self, config_dir: Path, dtype: str, chosen: Mapping[str, str]) -> nn.Module:
        self._built = (config_dir, dtype, dict(chosen))
        torch.manual_seed(0)
        kernels = {name: kernel for name, kernel in chosen.items() if name != SETTING}
        return cast(nn.Module, self._build(config_dir, None, self._device, dtype, **kernels).train())

    def training_runs(self, checkpoint: Path, where: Path) -> tuple[list[TrainingRun], list[str]]:
        """On the integration's own training files, data and launcher, with overrides for a small model."""
        with _before_forking(self._device):
            model = self.load(checkpoint)
            modules = {name.rpartition(".")[2] for name, _ in model.named_modules()}
            processor = partial(write_processor, model) if sees(speaker_of(model)) else None
            runs = TextRuns(self._path, self._training_files, self._import_name, checkpoint, modules, where, processor)
            found = runs.planned()
        for run in found[0]:
            trainer.prepare(run.module)
        self._notes = [*trainer.said(), *([STAND_IN] if processor is not None else [])]
        return found

    def run_trainer(self, run: TrainingRun, out: Path) -> None:
        """By the integration's launcher."""
        trainer.run(run, out)

    def meshes(self, level: str, config_dir: Path) -> Sequence[Mesh] | str:
        """Return the meshes that fit the model and the machine; what was left out is noted."""
        found, left_out = meshes_of(level, self._build(config_dir, None, "meta"), self._device)
        self._notes += left_out  # the processes of the launch begin with it
        return found

    def train(self, checkpoint: Path, batches: Sequence[Batch], mesh: Mesh) -> list[tuple[Tensors, Tensors]]:
        """Return a step on each batch by VeOmni's own runtime; see `Distributed.train`."""
        begin(mesh, self._device)
        alone = mesh.processes == 1
        weights, device = (checkpoint, self._device) if alone else (None, "meta")
        model = self._build(checkpoint, weights, device, mesh.dtype, **self._kernels(mesh, checkpoint))
        self._notes += use_stand_ins(model, mesh) if self._device == "cpu" else []
        if "ulysses" in mesh.sizes:
            self._notes.append(without_router_loss(model))
        ready = model.train() if alone else shard(model, checkpoint)
        return [step(ready, batch, self._device) for batch in batches]

    def _kernels(self, mesh: Mesh, config_dir: Path) -> dict[str, str]:
        """Return the kernels that VeOmni needs to share work: attention over packed sequences, and grouped experts."""
        shares_experts = mesh.sizes.get("ep", 1) > 1
        if self._device == "cpu":
            return select_grouped_experts() if shares_experts else {}
        # Of what knows of sequence parallelism, flex attention alone computes in float32.
        attention = {"attn_implementation": "flex_attention"} if "ulysses" in mesh.sizes else {}
        if not shares_experts:
            return attention
        return attention | {"moe_implementation": expert_kernel(self._build(config_dir, None, "meta"))}

    def _build(
        self, config_dir: Path, weights: Path | None, device: str, dtype: str = "float32", **kernels: str
    ) -> Any:
        from veomni.models import build_foundation_model

        return build_foundation_model(
            config_path=str(config_dir),
            weights_path=str(weights) if weights else None,
            torch_dtype=dtype,
            init_device=device,
            ops_implementation=eager_operations(**kernels),
        )


def use_stand_ins(model: nn.Module, mesh: Mesh) -> list[str]:
    """Put instead of kernels what a CPU can run; return what is to be said about it."""
    said = use_grouped_experts(model) if mesh.sizes.get("ep", 1) > 1 else []
    return [*said, use_packed_attention(model)] if takes_flash(model) else said


def _forget_overrides(registry: Any, keys: list[str]) -> None:
    """Remove what a plugin that was compared before in this process put over VeOmni's own registrations."""
    for key in keys:
        with suppress(KeyError):
            del registry[key]


def _check_registered(registry: Any, key: str, import_name: str) -> None:
    """Raise unless `key` leads into the model directory."""
    if key not in registry.valid_keys():
        raise BadInput(f"importing {import_name} does not register '{key}' with MODELING_REGISTRY")
    owner = getattr(registry[key], "__module__", import_name)
    if owner != import_name and not owner.startswith(f"{import_name}."):
        raise BadInput(f"'{key}' is registered by {owner}: importing {import_name} does not replace it")


@contextmanager
def _before_forking(device: str) -> Iterator[None]:
    """Join a process group of one and use one thread, until what follows is forked: that must find neither."""
    threads, joined = torch.get_num_threads(), distributed.is_initialized()
    torch.set_num_threads(1)
    _one_process(device)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if not joined:
            distributed.destroy_process_group()


def _one_process(device: str) -> None:
    """A process group of one: without any, VeOmni's loader silently returns a model without storage."""
    if not distributed.is_initialized():
        backend = "nccl" if device == "cuda" else "gloo"
        distributed.init_process_group(backend, store=distributed.HashStore(), rank=0, world_size=1)
