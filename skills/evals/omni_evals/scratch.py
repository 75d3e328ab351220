"""Parts of scratch projects: integrations, toy checkpoints and injected faults."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

# Small sizes that all differ; each config takes those that it has.
_SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "vocab_size": 97, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "moe_intermediate_size": 24, "num_experts": 6, "num_local_experts": 6,
    "num_experts_per_tok": 2, "first_k_dense_replace": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


class Scratch:
    """A project under construction.

    Args:
        root: its directory, which is there.
    """

    def __init__(self, root: Path):
        self.root = root

    def write(self, path: str, text: str) -> Path:
        """A file of the project."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def copy(self, source: Path, path: str) -> None:
        """A directory from elsewhere."""
        shutil.copytree(source, self.root / path, ignore=shutil.ignore_patterns("__pycache__"))

    def edit(self, path: str, old: str, new: str) -> None:
        """Replaces a text that stands in a file exactly once.

        Raises:
            ValueError: it stands there never, or more than once; the fault would not be the one that is meant.
        """
        file = self.root / path
        text = file.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{path} has {text.count(old)} times: {old}")
        file.write_text(text.replace(old, new), encoding="utf-8")

    def tool(self, *arguments: str | Path, code: int = 0) -> str:
        """omni-kit, called in the project's root; returns what it printed.

        Raises:
            ValueError: it ended with another exit code.
        """
        command = [sys.executable, "-m", "omni_kit", *map(str, arguments)]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        if done.returncode != code:
            raise ValueError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def plugin(self, name: str, source: str, *options: str, target: str = "veomni") -> str:
        """An integration as new-model makes it, generated code included; its path in the project."""
        self.tool("new-model", name, "--from", source, "--target", target, "--into", "plugins", *options)
        self.generate(f"plugins/{name}")
        return f"plugins/{name}"

    def generate(self, path: str) -> None:
        """Runs the patch configs of an integration, where it has any."""
        for config in sorted((self.root / path).glob("*_patch_gen_config.py")):
            self.tool("patchgen", "run", config)

    def config(self, path: str, model_type: str, **values: Any) -> None:
        """A small config.json of a model_type of transformers."""
        _small(model_type, values).save_pretrained(self.root / path)

    def checkpoint(self, path: str, model_type: str, **values: Any) -> None:
        """A small checkpoint of a causal language model, saved by transformers itself."""
        import torch
        from transformers import AutoModelForCausalLM

        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(_small(model_type, values)).save_pretrained(self.root / path)

    def tensors(self, path: str) -> dict[str, Any]:
        """All tensors of a safetensors file."""
        from safetensors.torch import load_file

        return dict(load_file(self.root / path))

    def save(self, path: str, tensors: dict[str, Any]) -> None:
        """Writes a safetensors file over another."""
        from safetensors.torch import save_file

        save_file(tensors, self.root / path, metadata={"format": "pt"})


def _small(model_type: str, values: dict[str, Any]) -> Any:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import AutoConfig

    default = AutoConfig.for_model(model_type)
    return AutoConfig.for_model(model_type, **{k: v for k, v in _SIZES.items() if hasattr(default, k)} | values)
