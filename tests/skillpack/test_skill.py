"""Reading skills, and what is wrong with some."""

from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.skillpack.skill import read_skill

GOOD = """---
name: my-skill
description: When to use it.
---

# Title

```bash
omni-kit inspect olmoe   # a remark
omni-kit new-model olmoe \\
    --from olmoe
# only a remark
```

```python
omni-kit not this
```
"""


def write(tmp_path: Path, text: str, name: str = "my-skill") -> Path:
    (tmp_path / name).mkdir()
    (tmp_path / name / "SKILL.md").write_text(text)
    return tmp_path / name / "SKILL.md"


def test_good(tmp_path: Path) -> None:
    skill = read_skill(write(tmp_path, GOOD))
    assert (skill.name, skill.description) == ("my-skill", "When to use it.")
    assert skill.commands() == ["omni-kit inspect olmoe", "omni-kit new-model olmoe --from olmoe"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("---\nname", "name", "no YAML front matter"),
        ("name: my-skill", "name: other-skill", "the directory's name"),
        ("name: my-skill", "name: My Skill", "lower-case"),
        ("description: When to use it.", "description: ''", "description must have"),
        ("description: When to use it.", f"description: {'x' * 1025}", "description must have"),
        ("name: my-skill", "name: [", "damaged front matter"),
    ],
)
def test_bad(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        read_skill(write(tmp_path, GOOD.replace(old, new, 1)))
