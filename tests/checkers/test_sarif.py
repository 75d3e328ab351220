"""SARIF logs are valid by the official schema (tests/fixtures/checkers/sarif-2.1.0.json, of OASIS, by Microsoft)."""

import json
from typing import TYPE_CHECKING, Any

import pytest

from omni_checkers import check
from omni_kit.diagnostics.sarif import as_sarif

from .conftest import Subject
from .variants import FIXTURES

if TYPE_CHECKING:
    import jsonschema

_WRONG = {"__init__.py": ('register("olmoe")', 'register("olmo_e")')}


@pytest.fixture(scope="module")
def schema() -> "jsonschema.Draft4Validator":
    import jsonschema

    return jsonschema.Draft4Validator(json.loads((FIXTURES / "sarif-2.1.0.json").read_text(encoding="utf-8")))


def _log(subject: Subject, model: str = "olmoe", edits: Any = None) -> dict[str, Any]:
    path = subject(model, edits)
    return json.loads(json.dumps(as_sarif(check([path]), path)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("model", "edits"), [("olmoe", None), ("olmoe", _WRONG), ("qwen2_vl", None)])
def test_a_log_is_valid(model: str, edits: Any, subject: Subject, schema: "jsonschema.Draft4Validator") -> None:
    log = _log(subject, model, edits)
    assert bool(log["runs"][0]["results"]) == bool(edits or model != "olmoe")
    schema.validate(log)


def test_the_schema_sees_a_log_that_is_not(subject: Subject, schema: "jsonschema.Draft4Validator") -> None:
    import jsonschema

    log = _log(subject, edits=_WRONG)
    log["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        schema.validate(log)
