"""Train a scaffold at a realistic width on one GPU, with VeOmni's trainer and kernels, compared with upstream's plain
loop.

python bench/train_on_gpu.py SOURCE: writes the integration as new-model does, a model of four layers that is 1024 wide,
and a data set; trains four steps in bfloat16, resumes after the second, and loads the export with upstream's loader.
Attention is torch's, so that flash-attn need not be installed; a row is one sample.
"""

import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import yaml

from omni_kit.parity.compare.files import state_of, stored_dtypes
from omni_kit.patchgen import run_config
from omni_kit.scaffold import new_model
from omni_kit.targets.veomni.runtime.trainer import ONE_GPU, Record, as_arguments, prepare

STEPS, SAVED = 4, 2
TURNS = 128  # samples of make_data that make one conversation of about 2,000 tokens
WIDTHS = {
    "hidden_size": 1024, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16,
    "num_key_value_heads": 16, "num_layers": 4, "attention_head_dim": 64, "caption_projection_dim": 1024,
    "num_experts": 16, "pos_embed_max_size": 192,
}  # fmt: skip
SETTINGS: dict[str, object] = {
    **ONE_GPU,
    "train.accelerator.fsdp_config.mixed_precision.enable": "false",
    "train.dyn_bsz": "false",
    "train.max_steps": STEPS,
    "train.checkpoint.save_epochs": 0,
    "train.checkpoint.save_steps": SAVED,
}


def builder_of(source: str) -> Any:
    """Return upstream's side on the GPU: diffusers for the name of a class, transformers for a model_type."""
    from omni_kit.targets.references.diffusers import DiffusersBuilder
    from omni_kit.targets.references.transformers import TransformersBuilder

    made: Any = DiffusersBuilder() if source[0].isupper() else TransformersBuilder()
    made.open({"device": "cuda"})
    return made


def train(out: Path, module: str, *arguments: str) -> None:
    """Run a launcher; write the record of its steps, their seconds without saving, and the most memory in GiB."""
    from veomni.trainer.base import BaseTrainer
    from veomni.trainer.callbacks import Callback

    from omni_kit.targets.replacing import replaced

    prepare(module)  # the record watches a trainer that is imported
    record, seconds, begin = Record(out), list[float](), BaseTrainer._init_callbacks

    class Timer(Callback):  # type: ignore[misc]  # VeOmni is not typed
        def on_step_begin(self, state: Any, **_: Any) -> None:
            torch.cuda.synchronize()
            seconds.append(-time.perf_counter())

        def on_step_end(self, state: Any, **_: Any) -> None:
            torch.cuda.synchronize()
            seconds[-1] += time.perf_counter()

    def init_callbacks(trainer: Any) -> None:
        begin(trainer)
        trainer._callbacks = [Timer(trainer), *trainer._callbacks, record.of(trainer)]

    with ExitStack() as stack:
        stack.enter_context(replaced(BaseTrainer, "_init_callbacks", init_callbacks))
        stack.enter_context(record.watching_conditions())
        stack.enter_context(replaced(sys, "argv", [module, *arguments]))
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    record.save()
    memory = torch.cuda.max_memory_allocated() / 2**30
    out.with_suffix(".json").write_text(json.dumps({"seconds": seconds, "memory": memory}))


def plain(out: Path, source: str, checkpoint: str, record: str) -> None:
    """Write the losses and norms of upstream's plain loop in bfloat16 over the samples of a record."""
    builder = builder_of(source)
    model = builder.load(Path(checkpoint), "bfloat16")
    steps = torch.load(record, weights_only=True)["steps"]
    optimizer = torch.optim.AdamW(model.parameters(), **steps[0]["optimizer"])
    found = []
    for step in steps:
        for group in optimizer.param_groups:
            group |= step["optimizer"]
        optimizer.zero_grad(set_to_none=True)
        losses = [builder.batch_loss(model, samples) for samples in step["batches"] if samples]
        loss = sum(value * weight for value, weight in losses) / sum(weight for _, weight in losses)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), step["max_norm"])
        optimizer.step()
        found.append({"loss": float(loss), "norm": float(norm)})
    out.write_text(json.dumps(found))


def load(out: Path, source: str, export: str, checkpoint: str, record: str) -> None:
    """Load an export with upstream's loader and use it; write how many tensors are what was trained."""
    builder = builder_of(source)
    model = builder.load(Path(export))
    trained, dtypes = torch.load(record, weights_only=True)["final"], stored_dtypes(Path(export))
    state = {name: tensor.cpu().float() for name, tensor in state_of(model).items()}
    equal = [name for name in trained if name in state and trained[name].to(dtypes[name]).float().equal(state[name])]
    used = builder.use(model, Path(checkpoint)) or "yes"
    out.write_text(json.dumps({"tensors": len(trained), "equal": len(equal), "used": used}))


def text_model(source: str, where: Path) -> dict[str, object]:
    """Write long conversations, a model with random weights and its tokenizer; return the settings that name them."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    data, place = where / "data.jsonl", where / "model"
    said = [json.loads(line)["messages"] for line in data.read_text().splitlines()]
    turns = [list(chain(*said[start : start + TURNS])) for start in range(0, len(said), TURNS)]
    data.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in turns))
    texts = (f"{message['role'].title()}: {message['content']}" for messages in said for message in messages)
    words = sorted({word for text in texts for word in text.split()})
    known = AutoConfig.for_model(source).to_dict()
    sizes = {name: value for name, value in WIDTHS.items() if isinstance(known.get(name), int)}
    AutoModelForCausalLM.from_config(AutoConfig.for_model(source, **sizes)).save_pretrained(place)
    numbers = {word: number for number, word in enumerate(["<eos>", "<unk>", *words])}
    made = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    own = {"eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<eos>"}
    PreTrainedTokenizerFast(tokenizer_object=made, **own).save_pretrained(place)
    return {"model.model_path": place, "data.chat_template": "default", "data.max_seq_len": 4096}


def diffusion_model(source: str, where: Path, config_path: Path) -> dict[str, object]:
    """Write a small pipeline with a wide transformer, and its config for VeOmni; return the settings that name them."""
    import diffusers

    from omni_kit.pysource.library import find_library
    from omni_kit.targets.veomni.dit.small_pipeline import toy
    from omni_kit.upstream.diffusers.pipelines import pipeline_of

    read = pipeline_of(find_library("diffusers"), source)
    if read is None:
        sys.exit(f"error: diffusers has no pipeline for {source}")
    place = where / "pipeline"
    toy(read.cls.node.name, place)
    part = place / read.denoiser.name
    config = json.loads((part / "config.json").read_text())
    model = getattr(diffusers, source).from_config({**config, **{k: v for k, v in WIDTHS.items() if k in config}})
    for parameter in model.parameters():  # some classes begin with zeros, and would predict nothing
        torch.nn.init.normal_(parameter, std=0.02) if not parameter.any() else None
    model.save_pretrained(part)
    signed = json.loads(config_path.read_text())
    keys = {key: signed[key] for key in ("model_type", "condition_model_type", "architectures") if key in signed}
    config_path.write_text(json.dumps({**json.loads((part / "config.json").read_text()), **keys}))
    return {"model.model_path": part, "model.condition_model_path": place}


def run(where: Path, *command: object) -> None:
    """Run Python with these arguments in the directory that contains the integration, or end with what it wrote."""
    paths = {"PYTHONPATH": f"{where}:{os.environ.get('PYTHONPATH', '')}"}
    told, started = [sys.executable, *map(str, command)], time.monotonic()
    done = subprocess.run(told, cwd=where, capture_output=True, text=True, env={**os.environ, **paths}, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout[-1500:]}{done.stderr[-6000:]}error: {' '.join(told)} failed")
    print(f"{time.monotonic() - started:.0f} s", " ".join(told), file=sys.stderr, flush=True)


def figures(source: str, where: Path) -> dict[str, Any]:
    """Train, resume, export and compare a source; return its figures."""
    torch.manual_seed(0)
    name, diffuses = f"gpu_{source.lower()}", source[0].isupper()
    new_model(name, source, target="veomni", into=where)
    for config in (where / name).glob("*_patch_gen_config.py"):
        run_config(config)
    run(where, "-m", f"{name}.make_data", "data.jsonl", "--samples", 64 if diffuses else STEPS * 8 * TURNS)
    file = where / name / "train.yaml"
    if diffuses:
        made = diffusion_model(source, where, where / yaml.safe_load(file.read_text())["model"]["config_path"])
    else:
        made = text_model(source, where)
    made["model.ops_implementation.attn_implementation"] = "eager" if diffuses else "sdpa"
    states, checkpoint = where / f"{name}_sft" / "checkpoints", made["model.model_path"]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=1", __file__, "train"]
    asked = [f"{name}.train", file, *as_arguments(SETTINGS | made)]
    whole, resumed = where / "whole.pt", where / "resumed.pt"
    run(where, *launch, whole, *asked, f"--train.checkpoint.hf_save_steps={STEPS}")
    again = {"load_path": states / f"global_step_{SAVED}", "output_dir": where / "again", "save_steps": 0}
    run(where, *launch, resumed, *asked, *(f"--train.checkpoint.{key}={value}" for key, value in again.items()))
    run(where, __file__, "plain", where / "plain.json", source, checkpoint, whole)
    export = states / f"global_step_{STEPS}" / "hf_ckpt"
    run(where, __file__, "load", where / "export.json", source, export, checkpoint, whole)
    record, continued = torch.load(whole, weights_only=True), torch.load(resumed, weights_only=True)["steps"]
    steps, upstream = record["steps"], json.loads((where / "plain.json").read_text())
    rows = [sample for batch in steps[0]["batches"] for sample in (batch if isinstance(batch, list) else [batch])]
    return {
        "source": source,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "parameters": sum(tensor.numel() for tensor in record["final"].values()),
        "samples": len(rows),
        "tokens": sum(len(row["input_ids"]) for row in rows) if not diffuses else None,
        "shapes": {key: list(value.shape) for key, value in rows[0].items() if isinstance(value, torch.Tensor)},
        **json.loads(whole.with_suffix(".json").read_text()),
        "losses": [step["mean"] for step in steps],
        "plain": [step["loss"] for step in upstream],
        "norms": [step["norm"] for step in steps],
        "plain_norms": [step["norm"] for step in upstream],
        "resumed": [step["mean"] for step in continued],
        "export": json.loads((where / "export.json").read_text()),
    }


def main() -> None:
    """Print the figures of a source, or run one part of it in a process of its own."""
    parts: dict[str, Callable[..., None]] = {"train": train, "plain": plain, "load": load}
    if sys.argv[1] in parts:
        parts[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
        return
    with tempfile.TemporaryDirectory(prefix="omni-kit-gpu-") as where:
        print(json.dumps(figures(sys.argv[1], Path(where))), flush=True)


if __name__ == "__main__":
    main()
