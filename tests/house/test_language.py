"""What users read keeps to the field's words: no figure of speech of this list comes back into a clean text."""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from omni_checkers.engine.registry import all_definitions

ROOT = Path(__file__).parents[2]

# A pattern -> what to write instead.
TICS = {
    r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|more\b)": "is not a ..., has no ...",
    r"\bholds? no\b": "does not contain",
    r"\bbesides\b": "also, except",
    r"\blikewise\b": "also, in the same way",
    r"\banew\b": "again",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bbeside\b": "next to, with",
    r"\botherwise than\b": "differently from",
    r"\bcalled otherwise\b": "named differently",
    r"\bin the place of\b": "instead of",
    r"\bwants\b": "needs, expects, requires",
    r"\bhanded\b|\bhands (?:it|them|on|over|to|a|the)\b": "pass",
    r"\b(?:is|are|was|were|be|been) (?:told|asked|said)\b": "print, pass, read, accept",
    r"\bwithout a word\b|\bin silence\b": "silently, without an error",
    r"\bgoes on\b|\bgo on\b": "continue",
    r"\bplanted?\b|\bplanting\b": "inject",
    r"\bno (?:dict|tensor|number|dtype|scalar|class|name|type|patch|value) (?:of|that|there)\b": "not a ...",
    r"\bnothing (?:that )?(?:there is|is) (?:a |no )?(?:rule|known)\b": "unknown, not supported",
    r"\bstands in (?:its|the) place\b|\b(?:is|are) put in the place\b": "replaces",
    r"\bin a way of (?:its|their) own\b": "in its own way",
    r"\b(?:is|was|are) not there\b": "is missing, does not exist",
    r"\bare? (?:fed|handed) (?:other|what)\b": "receives",
    r"\bthe other way round\b": "reversed",
    r"\b(?:lie|lies) (?:on disk|in memory|as|so)\b": "is stored",
    r"\bno run tells\b|\bcannot tell\b": "cannot distinguish",
    r"^(?-i:give) ": "pass",
    r"\bstands? twice\b": "appears twice",
    r"\bsay inject\b": "pass",
    r"\b(?:asks?|asked) (?:its|the) (?:model|denoiser|autoencoder)\b": "call",
    r"^(?-i:Whose|What (?:is|was|are))\b(?!.*[?]$)": "name the noun",
}
_COMPILED = {re.compile(pattern, re.IGNORECASE): instead for pattern, instead in TICS.items()}
_CODE = re.compile(r"```.*?```|`[^`\n]*`|<!--.*?-->", re.DOTALL)
# Docstrings: the figures of speech that no docstring has, public or not. A colon after one is an attribute's name.
_IN_DOCSTRINGS = re.compile(
    r"\b(?:besides?|likewise|anew|mend(?:s|ed|ing)?|goes on|otherwise than|in the place of|handed (?:on|over)"
    r"|hands (?:it|them|on|over|to|an?|the)|cannot be told|comes? along|(?:none|empty|nothing) where)\b(?!:)",
    re.IGNORECASE,
)  # fmt: skip
# Docstrings begin with a verb or a noun, and not with a clause or a pronoun without one.
_HEADLESS = re.compile(r"(?:What|Whose|Who|Whether|Where|Which|How|Why|Those|It|So|As|The same)\b")
# Attributes that had a coined name, and the field's names.
_COINED = {
    "feed": "batch_builder",
    "fed": "preparation, inputs",
    "ways": "scenarios, variants",
    "made_batch_builder": "made_...",
}


def tics(text: str) -> list[str]:
    """Each figure of speech in a text, in its sentence, and what to write instead; code is not read."""
    plain = re.sub(r"\n\s*(?:[-*#>]|\d+\.)\s+|\n\n|\|", "\n\n", _CODE.sub("`code`", text))
    sentences = [" ".join(one.split()) for part in plain.split("\n\n") for one in re.split(r"(?<=[.!?])\s+", part)]
    return [f"{one}: write {instead}" for one in sentences for tic, instead in _COMPILED.items() if tic.search(one)]


def pages() -> Iterator[Path]:
    """The pages that people and agents read, without those that are rendered from rules."""
    yield from (ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"))
    for folder in ("docs", "docs/howto", "docs/reference"):
        yield from sorted((ROOT / folder).glob("*.md"))
    yield from (page for page in sorted((ROOT / "skills").glob("**/*.md")) if "evals" not in page.parts)


def template_texts(source: str) -> Iterator[str]:
    """The docstrings and comments of a Python template; placeholders count as code."""
    plain = re.sub(r"\{%.*?%\}", "", re.sub(r"\{\{.*?\}\}", "`code`", source, flags=re.DOTALL), flags=re.DOTALL)
    for found in re.finditer(r'"""(.*?)"""|^ *#([^\n]*)|  # ([^\n]*)', plain, re.DOTALL | re.MULTILINE):
        yield next(text for text in found.groups() if text is not None)


parsed = cache(ast.parse)


@pytest.fixture(autouse=True, scope="module")
def forgotten() -> Iterator[None]:
    """Forget the trees of all files once every test has looked at them."""
    yield
    parsed.cache_clear()


def texts(source: str) -> Iterator[str]:
    """Yield the sentences in a file's code, of four words or more and no patterns; placeholders count as code."""
    tree = parsed(source)
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    inner |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(parts):
                text = "".join(str(one.value) if isinstance(one, ast.Constant) else "`code`" for one in parts)
            case ast.Constant(str(text)) if id(node) not in inner:
                pass
            case _:
                continue
        if "\n" not in text and "(?" not in text and len(text.split()) > 3:
            yield text


def test_rules_are_written_as_a_reviewer_would() -> None:
    said = {rule: definition.documentation for rule, definition in all_definitions().items()}
    parts = [(rule, part) for rule, one in said.items() for part in (one.summary, one.details, one.why, one.fine_when)]
    assert [(rule, tic) for rule, part in parts for tic in tics(part)] == []


def test_pages_are_written_in_the_words_of_the_field() -> None:
    assert [(page, tic) for page in pages() for tic in tics(page.read_text(encoding="utf-8"))] == []


def test_templates_are_written_in_the_words_of_the_field() -> None:
    found = []
    for template in sorted((ROOT / "templates").rglob("*.jinja")):
        source = template.read_text(encoding="utf-8")
        texts = [source] if template.name.endswith(".md.jinja") else template_texts(source)
        found += [(template, tic) for text in texts for tic in tics(text)]
    assert found == []


@pytest.mark.parametrize("folder", ["checkers", "toolkit"])
def test_errors_and_findings_are_written_in_the_words_of_the_field(folder: str) -> None:
    files = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / folder).rglob("*.py"))}
    said = {path: [tic for text in texts(source) for tic in tics(text)] for path, source in files.items()}
    assert {str(path.relative_to(ROOT)): found for path, found in said.items() if found} == {}


@pytest.mark.parametrize("folder", ["checkers", "toolkit"])
def test_docstrings_are_written_in_the_words_of_the_field(folder: str) -> None:
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(parsed(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = _CODE.sub("`code`", ast.get_docstring(node) or "")
                found += [(path.name, tic.group(), text[:60]) for tic in _IN_DOCSTRINGS.finditer(text)]
    assert found == []


def documented(source: str) -> Iterator[str]:
    """Yield the docstrings of a file: of its module, classes and functions, and those below attributes."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            for one in node.body:
                match one:
                    case ast.Expr(ast.Constant(str(text))):
                        yield inspect.cleandoc(text)


@pytest.mark.parametrize("folder", ["checkers", "toolkit", "tools", "bench", "docs", "skills/evals/omni_evals"])
def test_docstrings_begin_with_a_verb_or_a_noun(folder: str) -> None:
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        texts = documented(path.read_text(encoding="utf-8"))
        found += [(path.name, text[:60]) for text in texts if _HEADLESS.match(text)]
    assert found == []


def test_a_headless_docstring_is_one_that_begins_so() -> None:
    source = '"""What is known."""\nX = 1\n"""How many."""\ndef f():\n    """Return what is known."""\n    x = "Who"\n'
    assert [text for text in documented(source) if _HEADLESS.match(text)] == ["What is known.", "How many."]


def coined(source: str) -> list[str]:
    """The coined names that classes of a file declare, or that it defines."""
    names = []
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.ClassDef):
            names += [
                one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and hasattr(one.target, "id")
            ]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.append(node.name)
    return [name for name in names if name in _COINED]


def test_no_attribute_has_a_coined_name() -> None:
    files = sorted((ROOT / "toolkit/omni_kit").rglob("*.py"))
    found = {path.name: coined(path.read_text(encoding="utf-8")) for path in files if "layout" not in path.parts}
    assert {name: names for name, names in found.items() if names} == {}


def test_a_coined_name_is_found_where_it_is_declared() -> None:
    assert coined("class A:\n    fed: str\n    def ways(self): ...\n") == ["fed", "ways"]
    assert coined("class A:\n    preparation: str\ndef f(fed): ...\n") == []


def test_a_docstring_may_name_an_attribute_by_such_a_word() -> None:
    assert _IN_DOCSTRINGS.findall("Puts one in the place of another.\n\nIt lies beside it.") == [
        "in the place of",
        "beside",
    ]
    assert _IN_DOCSTRINGS.findall("Replace one by another.\n\nAttributes:\n    beside: the folder.") == []


@pytest.mark.parametrize(("fires", "quiet"), [
    ("x.txt is no file", "x.txt is not a file; there is no other one"),
    ("the loader is told the size", "the loader reads the size"),
    ("| What is missing | `a` |", "| What `a` reads | `is no file` |"),
    ("It needs torch.\n\n- Whose loop it is", "Pipelines whose loop is their own"),
    ("SGLang drops it without a word", "SGLang silently drops it"),
    ("it answers no dict of arguments", "it returns no arguments"),
    ("nothing there is a rule for", "no rule covers it"),
    ("the kernel stands in its place", "the kernel replaces it"),
    ("it steps in a way of its own", "it steps in its own way"),
    ("the key is not there", "the key is missing"),
    ("it takes halves the other way round", "it takes halves in reverse order"),
    ("experts lie on disk", "experts are stored on disk"),
    ("no run tells them apart", "no run distinguishes them"),
    ("give a checkpoint directory", "pass a checkpoint directory, and give the parameter a default"),
    ("a key stands twice", "a key appears twice"),
    ("say inject=True", "pass inject=True, and say so"),
    ("it asks its denoiser twice", "it calls its denoiser twice"),
])  # fmt: skip
def test_the_list_has_a_figure_of_speech_and_not_its_plain_form(fires: str, quiet: str) -> None:
    assert len(tics(fires)) == 1
    assert tics(quiet) == []


def test_texts_of_templates_are_their_docstrings_and_comments() -> None:
    source = (
        '"""{{ name }} wants a list."""\nx = "mend it"  # in the place of {{ y }}\n{% if z %}\n# code\n{% endif %}\n'
    )
    assert [text.strip() for text in template_texts(source)] == [
        "`code` wants a list.",
        "in the place of `code`",
        "code",
    ]


def test_sentences_of_code_are_read_without_docstrings_and_names() -> None:
    source = 'def f():\n    """It is no file."""\n    raise E(f"{path} is no file", "mend", "it is no file")\n'
    assert list(texts(source)) == ["`code` is no file", "it is no file"]
