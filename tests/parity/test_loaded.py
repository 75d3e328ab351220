"""What a process says it has loaded, links and failures to open included."""

import json
import py_compile
import subprocess
import sys
from pathlib import Path

_ASKED = """
import json, os, sys
from omni_kit.parity.processes import loaded
loaded.watch()
exec(sys.stdin.read())
print(json.dumps(loaded.loaded_files()))
"""


def _loaded(code: str, place: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _ASKED], input=code, cwd=place, capture_output=True, text=True, check=True,
        env={"PYTHONPATH": ":".join(sys.path), "TMPDIR": str(place / "scratch")},
    )  # fmt: skip
    files: list[str] = json.loads(done.stdout)
    return [file for file in files if file.startswith(str(place))]


def test_what_is_opened_for_reading_counts_and_what_is_written_does_not(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1", encoding="utf-8")
    (tmp_path / "b").write_text("1", encoding="utf-8")
    (tmp_path / "named").write_text("1", encoding="utf-8")
    (tmp_path / "scratch").mkdir()
    code = """
open("a").close(); os.close(os.open(b"b", os.O_RDONLY)); os.close(os.open("named", os.O_PATH))
open("c", "w").close(); open("scratch/d", "w").close(); open("scratch/d").close()
try: open("absent")
except OSError: pass
"""
    assert _loaded(code, tmp_path) == [str(tmp_path / name) for name in ("a", "absent", "b")]


def test_a_module_counts_by_its_source_even_when_it_has_left(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("", encoding="utf-8")
    code = f"sys.path.insert(0, {str(tmp_path)!r}); import mine; del sys.modules['mine']"

    assert _loaded(code, tmp_path) == [str(tmp_path / "mine.py")]
    assert _loaded(code, tmp_path) == [str(tmp_path / "mine.py")]  # which now reads bytecode
    assert list((tmp_path / "__pycache__").iterdir())


def test_bytecode_that_is_not_its_source_s_is_not_run(tmp_path: Path) -> None:
    """Bytecode may say that nobody need compare it with the source; then what is read is not what runs."""
    source = tmp_path / "mine.py"
    source.write_text("print('another')\n", encoding="utf-8")
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    source.write_text("print('the source')\n", encoding="utf-8")
    code = "from omni_kit.parity.processes.service import service; service('candidate'); import mine"

    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "the source\n"
