"""VeOmni's own trainer in one process of several: what a CPU lacks is stood in for, and what it does is recorded."""

import dataclasses
import importlib
import importlib.util
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from omni_kit.documents import read_mapping
from omni_kit.targets.replacing import replaced
from omni_kit.targets.sides import ALONE, TrainingRun
from omni_kit.targets.veomni.runtime import resizing
from omni_kit.targets.veomni.runtime.attention import SHARED, packed_attention, takes_flash
from omni_kit.targets.veomni.runtime.kernels import eager_operations
from omni_kit.targets.veomni.runtime.processor import Made, toy_processors
from omni_kit.toys.tensors import Tensors

NOT_CHECKED = "stepped over VeOmni's check that torch is a version whose consolidation of checkpoints it patches"
NO_TORCHVISION = "torch stood in for torchvision, which resizes videos"
_stood_in: list[str] = []
ON_CPU = (
    "the trainer ran on a CPU: gloo, plain kernels and float32 were selected; what torch.compile traced ran as traced, "
    "without generated code"
)
ON_GPU = "the trainer ran on {} GPU: plain kernels and float32 were selected, and torch stood in for flash attention"
# What trainers ask of a device's namespace in torch, and torch.cpu lacks.
_OF_DEVICES: Mapping[str, Any] = {
    "get_device_name": "cpu",
    "memory_allocated": 0,
    "max_memory_allocated": 0,
    "max_memory_reserved": 0,
    "memory_stats": {"num_alloc_retries": 0},
    "empty_cache": None,
}
ONE_GPU: Mapping[str, object] = {"train.init_device": "cuda", "train.accelerator.fsdp_config.fsdp_mode": "ddp"}
"""The settings of a training in one process, whose weights are not spread."""
STEPS, SAVED = 4, 2
"""Number of steps in a run, and the step after which it saves."""
_ACCELERATOR = "cuda"
_ADAPTER = "lora_"  # in the names of their tensors


def run(job: TrainingRun, out: Path) -> None:
    """Run a launcher with these arguments, as `torchrun -m` does, and write the record of this process below `out`."""
    from datasets import config as of_datasets  # type: ignore[import-untyped]
    from veomni.trainer.base import BaseTrainer

    record = Record(out / f"rank{os.environ['RANK']}.pt")
    begin = BaseTrainer._init_callbacks

    def init_callbacks(trainer: Any) -> None:
        begin(trainer)
        trainer._callbacks.append(record.of(trainer))

    with ExitStack() as stack:
        # Not the user's, which a confined process cannot make.
        stack.enter_context(replaced(of_datasets, "HF_DATASETS_CACHE", out / "datasets"))
        stack.enter_context(_in_float32())
        if not torch.cuda.is_available():
            stack.enter_context(on_cpu())
        stack.enter_context(_any_torch())
        stack.enter_context(replaced(BaseTrainer, "_init_callbacks", init_callbacks))
        stack.enter_context(record.watching_conditions())
        stack.enter_context(toy_processors(record.made))
        stack.enter_context(replaced(sys, "argv", [job.module, *job.arguments]))
        runpy.run_module(job.module, run_name="__main__", alter_sys=True)
    record.save()


def prepare(module: str) -> None:
    """Import what a launcher imports, without starting it: processes that are forked from this one have it then."""
    without_torchvision()
    runpy.run_module(module, run_name="imported")


def said() -> list[str]:
    """Return what is stood in for on this machine, one line each."""
    from veomni.checkpoint import dcp_consolidation

    lines = [] if torch.__version__.startswith(dcp_consolidation._SUPPORTED_TORCH_VERSION_PREFIXES) else [NOT_CHECKED]
    return [*lines, *_stood_in, ON_GPU.format(several()) if torch.cuda.is_available() else ON_CPU]


def several() -> int:
    """Return how many processes a run of several has: two, or one on a machine with one GPU."""
    return 1 if torch.cuda.device_count() == 1 else 2


def without_torchvision() -> None:
    """Let VeOmni's data pipeline be imported where torchvision is not installed, whose wheels are for accelerators.

    What the pipeline calls of it, it finds in `omni_kit.targets.veomni.runtime.resizing`.
    """
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is not None:
        return
    names = ("torchvision", "torchvision.transforms", "torchvision.transforms.functional")
    made = {name: ModuleType(name) for name in names}
    made["torchvision"].transforms = made[names[1]]  # type: ignore[attr-defined]
    made[names[1]].functional = resizing  # type: ignore[attr-defined]
    made[names[1]].InterpolationMode = resizing.InterpolationMode  # type: ignore[attr-defined]
    made[names[2]] = resizing
    sys.modules.update(made)
    try:
        importlib.import_module("veomni.data.multimodal.video_utils")
    finally:  # transformers and diffusers must not find it
        for name in names:
            del sys.modules[name]
    _stood_in.append(NO_TORCHVISION)


class Record:
    """Record of a trainer in one process.

    Args:
        file: where it is written.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._steps: list[dict[str, Any]] = []
        self._made: list[Any] = []
        self._adapters: Tensors = {}
        self._final: Tensors = {}
        self.made: Made = {}  # with media

    def of(self, trainer: Any) -> Any:
        """Return a callback of VeOmni's trainers that takes the record."""
        from veomni.trainer.callbacks import Callback

        record = self

        class Recorder(Callback):  # type: ignore[misc]  # VeOmni is not typed
            def on_step_begin(self, state: Any, micro_batches: Any = None, **_: Any) -> None:
                record.begin(trainer, micro_batches)

            def on_step_end(self, state: Any, loss: float, grad_norm: Any, **_: Any) -> None:
                record.end(trainer, loss, grad_norm)

            def on_train_end(self, state: Any, **_: Any) -> None:
                record.finish(trainer)

        return Recorder(trainer)

    def begin(self, trainer: Any, micro_batches: Sequence[Any]) -> None:
        """Note the batch and the optimizer's settings before a step."""
        group = trainer.optimizer.param_groups[0] if trainer.optimizer is not None else {}
        self._made = []
        if not self._steps:
            self._adapters = dict(_whole(trainer.model, _ADAPTER))
        self._steps.append(
            {
                "batches": [_samples(batch, self.made) for batch in micro_batches],
                "optimizer": {name: group[name] for name in ("lr", "betas", "eps", "weight_decay") if name in group},
                "max_norm": trainer.args.train.optimizer.max_grad_norm,
            }
        )

    def end(self, trainer: Any, loss: float, grad_norm: Any) -> None:
        """Note what a step gave: the loss of this process, that of all, and the norm of the gradients."""
        step = self._steps[-1]
        step |= {
            "step": trainer.state.global_step,
            "loss": float(loss),
            "mean": float(trainer.step_train_metrics["training/total_loss"]),
            "norm": float(grad_norm),
        }
        if self._made:
            step["batches"] = [_of_lists(one) for one in self._made]

    def finish(self, trainer: Any) -> None:
        """Note every weight, put together from all processes."""
        self._final = dict(_whole(trainer.model))

    @contextmanager
    def watching_conditions(self) -> Iterator[None]:
        """Also note what a diffusion trainer passes its transformer, where that trainer can be imported."""
        module = sys.modules.get("veomni.trainer.dit_trainer")
        if module is None:
            yield
            return
        right = module.DiTTrainer._build_condition_model

        def build(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            found = right(trainer, *args, **kwargs)
            model = trainer.condition_model
            process = model.process_condition

            def processed(*given: Any, **named: Any) -> Any:
                answer = process(*given, **named)
                self._made.append(answer)
                return answer

            model.process_condition = processed
            return found

        with replaced(module.DiTTrainer, "_build_condition_model", build):
            yield

    def save(self) -> None:
        """Write the record; only the first process has the weights."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        first = os.environ["RANK"] == "0"
        weights = {"adapters": self._adapters if first else {}, "final": self._final if first else {}}
        torch.save({"steps": self._steps, **weights}, self._file)


def _whole(model: nn.Module | None, part: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor of a model whose name has a part, put together from all processes."""
    from torch.distributed.tensor import DTensor
    from torch.nn.parallel import DistributedDataParallel

    whole = model.module if isinstance(model, DistributedDataParallel) else model
    for name, tensor in whole.state_dict().items() if whole is not None else ():
        if part in name:
            gathered = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            yield name, gathered.detach().cpu().clone()


def _samples(batch: Mapping[str, Any], made: Made) -> list[Tensors]:
    """Return the samples of a packed batch, with their media if they have some; none of what is made only later."""
    if not isinstance(batch.get("input_ids"), torch.Tensor):
        return []
    ids, labels, positions = (batch[name][0].cpu() for name in ("input_ids", "labels", "position_ids"))
    first = (positions.reshape(-1, len(ids)) == 0).all(0)  # several axes with media
    starts = [*torch.nonzero(first).flatten().tolist(), len(ids)]
    cut = [slice(start, end) for start, end in pairwise(starts) if end > start]
    found = [
        {"input_ids": ids[part].clone(), **made.get(tuple(ids[part].tolist()), {}), "labels": labels[part].clone()}
        for part in cut
    ]
    return [sample for sample in found if bool((sample["labels"] != -100).any())]


def _of_lists(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Split lists with a value for each sample into one mapping a sample."""
    count = len(next(iter(answer.values())))
    return [{name: _copied(values[i]) for name, values in answer.items()} for i in range(count)]


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    return [_copied(one) for one in value] if isinstance(value, list | tuple) else value


@contextmanager
def _any_torch() -> Iterator[None]:
    """Step over the one check of torch's version before checkpoints are consolidated, which torch's own code does."""
    from veomni.checkpoint import dcp_consolidation

    supported = dcp_consolidation._SUPPORTED_TORCH_VERSION_PREFIXES
    done = dcp_consolidation._dcp_consolidation_patch_applied or not torch.__version__.startswith(supported)
    with replaced(dcp_consolidation, "_dcp_consolidation_patch_applied", done):
        yield


@contextmanager
def _in_float32() -> Iterator[None]:
    """Give VeOmni's trainers an attention over packed sequences in float32, which flash attention does not take."""
    from transformers import PretrainedConfig
    from veomni.ops.kernels.attention import flash
    from veomni.trainer import base

    parallelize = base.BaseTrainer._build_parallelized_model

    def build(trainer: Any) -> None:
        if trainer.args.data.data_type != "diffusion":  # which packs nothing, and has masks
            _attend(trainer.model)
        parallelize(trainer)

    with ExitStack() as stack:
        stack.enter_context(replaced(base.BaseTrainer, "_build_parallelized_model", build))
        stack.enter_context(replaced(flash, "_flash_attention_forward", packed_attention))
        # On the class, not on each config: trainers write those as JSON.
        stack.enter_context(replaced(PretrainedConfig, "_pre_quantization_dtype", torch.float32))
        yield


@contextmanager
def on_cpu() -> Iterator[None]:
    """Give VeOmni's trainers a backend and a device that a CPU has."""
    from veomni.trainer import base
    from veomni.utils import device, helper

    for name, value in _OF_DEVICES.items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, lambda *_, value=value, **__: value)
    with ExitStack() as stack:
        for module in (device, base):
            stack.enter_context(replaced(module, "get_dist_comm_backend", lambda: "gloo"))
        own = (sys.modules.get(f"veomni.trainer.{name}_trainer") for name in ("dit", "vlm"))
        for module in filter(None, (base, *own)):
            stack.enter_context(replaced(module, "build_foundation_model", _at_home(module)))
        # Code that inductor generates for a CPU's vectors (torch 2.13) has gradients that are 0.3 % off in float32.
        stack.enter_context(replaced(torch, "compile", partial(torch.compile, backend="aot_eager")))
        # It sleeps for a second to log the CPU's usage, twice in a run.
        stack.enter_context(replaced(helper, "print_cpu_memory_info", lambda: None))
        yield


def _at_home(module: ModuleType) -> Callable[..., Any]:
    """Return VeOmni's builder, which builds on this CPU what is to be built on an accelerator."""
    right: Callable[..., Any] = module.build_foundation_model

    def build(*args: Any, init_device: str, **kwargs: Any) -> Any:
        return right(*args, init_device="cpu" if init_device == _ACCELERATOR else init_device, **kwargs)

    return build


def _attend(model: nn.Module) -> None:
    """Send attention through VeOmni's function over packed sequences, if the model declares flash attention."""
    if not takes_flash(model):
        return
    for part in model.modules():
        if (config := getattr(part, "config", None)) is not None:
            config._attn_implementation = SHARED


def plain_settings() -> list[str]:
    """Return the arguments that choose plain code for every kernel, save where VeOmni has none."""

    chosen = eager_operations()
    fields = [field.name for field in dataclasses.fields(chosen) if field.name.endswith("_implementation")]
    return [part for name in fields for part in (f"--model.ops_implementation.{name}", str(getattr(chosen, name)))]


def small_settings(data: Path, out: Path) -> dict[str, object]:
    """Return the arguments of a short training in float32, whatever the model."""
    alone = ONE_GPU if several() == 1 else {}
    return {
        **alone,
        "data.train_path": data,
        "data.dataloader.num_workers": 0,
        "train.global_batch_size": 4,
        "train.micro_batch_size": 1,
        "train.max_steps": STEPS,
        "train.optimizer.lr": 1e-3,
        "train.accelerator.fsdp_config.mixed_precision.param_dtype": "float32",
        "train.checkpoint.output_dir": out,
        "train.checkpoint.save_epochs": 0,
    }


def as_arguments(settings: Mapping[str, object]) -> list[str]:
    """Return settings as the command line of VeOmni's trainers takes them."""
    return [f"--{name}={value}" for name, value in settings.items()]


def refused(runs: Sequence[TrainingRun]) -> Iterator[str]:
    """Yield why VeOmni's `parse_args` refuses a training file, by itself or with a run's arguments."""
    files: set[str] = set()
    for run in runs:
        file = run.arguments[0]
        asked = [run.arguments] if file in files else [[file, *plain_settings()], run.arguments]
        files.add(file)
        for arguments in asked if run.name != ALONE else [run.arguments]:
            try:
                found = parsed(run.module, arguments)
            except Exception as error:  # VeOmni's own
                yield f"VeOmni's parse_args refuses {Path(file).name}: {' '.join(str(error).split())[:300]}"
                break
            if arguments is not run.arguments:
                values = read_mapping(Path(file))
                yield from (
                    f"{Path(file).name}: VeOmni has no {name}, and ignores it" for name in _unknown(values, found)
                )


def _unknown(values: Mapping[str, Any], known: Any, at: str = "") -> Iterator[str]:
    """The keys of a training file that VeOmni's arguments do not have."""
    names = {field.name for field in dataclasses.fields(known)}
    for key, value in values.items():
        if key not in names:
            yield f"{at}{key}"
        elif isinstance(value, Mapping) and dataclasses.is_dataclass(getattr(known, key)):
            yield from _unknown(value, getattr(known, key), f"{at}{key}.")


def parsed(module: str, arguments: Sequence[str]) -> Any:
    """Return what VeOmni's `parse_args` makes of arguments, with the class of arguments that a launcher names.

    Raises:
        SystemExit: the arguments are not VeOmni's.
        Exception: as VeOmni raises.
    """
    from veomni import arguments as arguments_module
    from veomni.arguments import parser

    class Parsed(Exception):
        """Ends the launcher once its arguments are there."""

    def parse(root: type[Any]) -> Any:
        raise Parsed(right(root))

    right = parser.parse_args
    argv = [module, *arguments]
    # A training file is for several processes, which are not there yet.
    with ExitStack() as stack:
        for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            stack.enter_context(replaced(os.environ, name, "2"))
        stack.enter_context(replaced(sys, "argv", argv))
        stack.enter_context(replaced(arguments_module, "parse_args", parse))
        stack.enter_context(suppress(SystemExit))
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except Parsed as found:
            return found.args[0]
    raise ValueError(f"VeOmni's parse_args refuses {arguments[0]}")
