"""Stand-ins are there in every process of SGLang's environment, once SGLang is imported and not before."""

import sys
from pathlib import Path

from omni_kit.isolation.programs import run_program

ROOT = Path(__file__).parents[3]
_SAID = """
import sys
from importlib.util import find_spec
{line}
before = "torchvision" in sys.modules
find_spec("json"), find_spec("sglang")
print(before, "torchvision" in sys.modules or find_spec("torchvision") is not None)
"""


def test_the_line_of_the_environment_registers_stand_ins_with_sglang() -> None:
    line = (ROOT / "environments/sglang/omni_kit_stand_ins.pth").read_text(encoding="utf-8")
    done = run_program([sys.executable, "-c", _SAID.format(line=line)], timeout=300)
    assert done.code == 0, done.stderr
    assert done.stdout.split() == ["False", "True"]
