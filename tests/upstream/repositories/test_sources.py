"""Files in which code that samples is looked for."""

from pathlib import Path

from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.sources import sources_of

NET = "from torch import nn\n\n\nclass Net(nn.Module):\n    def forward(self, x, t):\n        return x\n"


def test_of_many_files_the_nearest_are_read(tmp_path: Path) -> None:
    for folder, count in (("another", 450), ("models", 1), ("zoo", 450)):
        (tmp_path / folder).mkdir()
        for at in range(count):
            (tmp_path / folder / f"file_{at}.py").write_text("", encoding="utf-8")
    (tmp_path / "models" / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "sample.py").write_text("from models.net import Net\n", encoding="utf-8")
    (tmp_path / "setup.py").write_text("", encoding="utf-8")
    (tmp_path / ".git").mkdir()
    read = [
        one.path.relative_to(tmp_path).as_posix()
        for one in sources_of(find_reference(f"{tmp_path}/models/net.py::Net"))
    ]
    assert read[:4] == ["models/net.py", "models/file_0.py", "sample.py", "setup.py"]
    assert len(read) < 902
