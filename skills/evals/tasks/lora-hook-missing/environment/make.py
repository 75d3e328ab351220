"""A mixture of experts without the hook that translates targets of adapters."""

from omni_evals.scratch import Scratch


def make(s: Scratch) -> None:
    plugin = s.plugin("osprey", "olmoe")
    file = f"{plugin}/__init__.py"
    text = (s.root / file).read_text()
    start, end = text.index("def convert_osprey_lora_targets("), text.index("@MODELING_REGISTRY.register")
    text = text[:start] + text[end:]
    kept = [line for line in text.splitlines() if "lora_targets" not in line]
    s.write(file, "\n".join(kept) + "\n")
