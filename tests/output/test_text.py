"""What others wrote is shown whole, as it is, and does nothing."""

import io
import json
import os
import subprocess
import sys

import pytest

from omni_kit.output.text import PlainConsole, shown, table

NASTY = "a\x1b[31mred\x1b]0;title\x07\u202eevil\ud800\r\x9bend"


def printed(*columns: str, width: int = 40) -> str:
    file = io.StringIO()
    rows = table("what", "evidence")
    rows.add_row(*columns)
    PlainConsole(file=file, width=width, highlight=False).print(rows)
    return file.getvalue()


def test_nothing_of_a_long_cell_is_lost() -> None:
    path = "transformers/models/" + "x" * 150 + "/modeling.py:17"
    text = printed("short", path)
    assert "…" not in text
    pieces = [line[line.rfind(" ", 0, 40) :] if " " in line.strip() else line for line in text.splitlines()[1:]]
    assert "".join(piece.strip() for piece in pieces).replace("short", "") == path


def test_control_characters_are_shown_and_not_obeyed() -> None:
    text = shown(NASTY)
    assert text == r"a\x1b[31mred\x1b]0;title\x07\u202eevil\ud800\x0d\x9bend"
    assert shown("plain\ttext\nélan 汉字") == "plain\ttext\nélan 汉字"


def test_cells_titles_and_lines_are_made_fit() -> None:
    file = io.StringIO()
    console = PlainConsole(file=file, width=200)
    rows = table("c", title=NASTY)
    rows.add_row(NASTY)
    console.print(rows)
    console.print(NASTY)
    assert not set("\x1b\x07\u202e\r\x9b") & set(file.getvalue())
    file.getvalue().encode()


SCRIPT = """
from omni_kit.output import Format, Output
import sys
output = Output("x", Format(sys.argv[1]))
text = "é \\ud800 \\x1b[0m " + "long-word" * 12
try:
    output.finish({"text": text}, ok=True, human=lambda console: console.print(text), notes=[text])
except Exception as error:
    print(type(error).__name__, file=sys.stderr)
"""


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("fmt", ["human", "json"])
def test_no_letter_ends_the_printing(fmt: str, encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", SCRIPT, fmt], env=environment, capture_output=True, check=False)
    assert done.stderr.decode().strip() == "Exit"
    assert b"\x1b" not in done.stdout
    if fmt == "json":
        assert json.loads(done.stdout)["text"].startswith("é \ud800 \x1b[0m long-word")


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("5", 40), ("wide", 120), ("", 120), ("-3", 120)])
def test_columns_counts_when_piped(columns: str, width: int) -> None:
    script = "from omni_kit.output import Output; print(Output('x').console.width)"
    environment = {**os.environ, "COLUMNS": columns}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == width
