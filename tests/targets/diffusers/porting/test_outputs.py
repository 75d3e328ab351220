"""What a forward returns: diffusers' output, or a tuple."""

import re
from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ASKED, NET, SPLIT, attention, ported

OUTPUT = "@dataclass\nclass NetOutput(BaseOutput):\n    sample: torch.Tensor\n    mask: torch.Tensor = None\n\n\n"
PLAIN = "if not return_dict:\n            return (hidden_states,)\n        return "
HERE = "Transformer2DModelOutput(sample=hidden_states)"


@pytest.mark.parametrize(("taken", "body", "written"), [
    (", return_dict=True", "if not return_dict:\n            return (x,)\n        return NetOutput(sample=x)",
     PLAIN + HERE),
    (", return_dict=True", "if not return_dict:\n            return x\n        return NetOutput(x)", PLAIN + HERE),
    (", return_dict=True", "if return_dict:\n            return {'x': x}\n        return x", PLAIN + HERE),
    (", return_dict=True", "if return_dict:\n            return NetOutput(x)\n        else:\n            return (x,)",
     PLAIN + HERE),
    (", return_dict=True", "if return_dict:\n            made['x'] = x\n            return made\n        return x",
     PLAIN + HERE),
    ("", "return NetOutput(sample=x)", PLAIN + HERE),
    ("", "return Answer(pred=x)", PLAIN + HERE),
    (", return_dict=True",
     "if not return_dict:\n            return (x, t)\n        return NetOutput(sample=x, mask=t)",
     "return (hidden_states, timestep)\n        return TinyNetOutput(sample=hidden_states, mask=timestep)"),
    ("", "return NetOutput(sample=x, mask=t)",
     "return (hidden_states, timestep)\n        return TinyNetOutput(sample=hidden_states, mask=timestep)"),
])  # fmt: skip
def test_the_authors_own_output_is_no_output_within_diffusers(
    taken: str, body: str, written: str, tmp_path: Path
) -> None:
    net = NET.replace("context):", f"context{taken}):").replace("        return x", f"        {body}")
    head = "from dataclasses import dataclass\nfrom diffusers.utils import BaseOutput\n"
    text = ported(tmp_path, head + attention(SPLIT, ASKED).replace(NET, OUTPUT + net)).text
    assert written in text
    assert text.count("if not return_dict") == 1
    assert "TODO" not in text.partition("def forward(self, hidden_states")[2]
    assert ("class TinyNetOutput" in text) == ("mask=timestep" in written)


@pytest.mark.parametrize(("returned", "written", "left"), [
    ("return x", "return (hidden_states,)", 0),
    ("return {'x': x}", "return (hidden_states,)", 0),
    ("out = dict()\n        out['x'] = x\n        return out", "return (sample,)", 0),
    ("out = {'mean': x.mean()}\n        out['x'] = x\n        return out", "return (sample,)", 1),
    ("return x, x.mean()", "return (hidden_states, hidden_states.mean())", 1),
    ("if deep:\n            return x, x.mean()\n        return x", "    return hidden_states, hidden_states", 0),
])  # fmt: skip
def test_a_forward_returns_the_sample(returned: str, written: str, left: int, tmp_path: Path) -> None:
    net = NET.replace("return x", returned).replace("context):", "context, deep=False):")
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, net))
    assert written in found.text
    assert re.search(r"Transformer2DModelOutput\(sample=(hidden_states|sample)\)", found.text)
    assert sum("output class of its own" in what for _, what in found.todo) == left
