"""The IDs of patchgen's diagnostics: what each code means. The number never changes and is never given away again.

1xx: the targets of patches. 2xx: the code of patches. 3xx: calls and outputs. 4xx: names and imports. 5xx: versions.
6xx: configs that generate nothing. 7xx: files that `patchgen check` compares.
"""

from collections.abc import Mapping

from omni_kit.diagnostics.definition import Definition, Documentation
from omni_kit.diagnostics.finding import Severity

_NEVER = "never."
_NOTHING_GENERATED = "never; patchgen generates nothing until it is fixed."


def _define(number: int, code: str, severity: Severity, summary: str, why: str, fine_when: str = _NEVER) -> Definition:
    said = Documentation(summary, why=why, fine_when=fine_when)
    generates = fine_when != _NOTHING_GENERATED
    fixable = code in {"dead-helper", "stale", "not-generated"}
    return Definition(f"PGN{number}", code, severity, "patchgen", said, fixable=fixable, suppressible=generates)


_ALL = (
    _define(
        101,
        "missing-target",
        Severity.error,
        "Patch, exclude, or place helpers next to, only definitions that upstream has.",
        "the patch has no effect. other generators list it as applied all the same.",
        _NOTHING_GENERATED,
    ),
    _define(
        102,
        "ambiguous-target",
        Severity.error,
        "Patch targets that upstream defines once.",
        "upstream defines the target several times, under conditions; the patch would replace only one of them.",
        _NOTHING_GENERATED,
    ),
    _define(
        103,
        "duplicate-target",
        Severity.error,
        "Patch each target once.",
        "the last patch replaces the others, and nothing of them remains in the generated file.",
        "the config extends another config and replaces one of its patches; this is a warning then.",
    ),
    _define(
        104,
        "shadowed",
        Severity.error,
        "Put changes of a replaced class, or of an overridden `__init__`, into the replacement.",
        "the larger patch replaces the whole definition, so the smaller one has no effect.",
        _NOTHING_GENERATED,
    ),
    _define(
        105,
        "excluded-target",
        Severity.error,
        "Do not exclude a definition that is patched.",
        "the definition is removed from the generated file, together with the patch.",
        _NOTHING_GENERATED,
    ),
    _define(
        106,
        "overlapping-patches",
        Severity.error,
        "Change each line of upstream's code by one patch.",
        "the result would depend on the order in which the patches are applied.",
        _NOTHING_GENERATED,
    ),
    _define(
        107,
        "guarded-target",
        Severity.info,
        "Check patches of definitions under an `if` or `try`.",
        "only the patched branch changes; on another platform or version the other branch runs.",
        "the other branch never runs with this framework.",
    ),
    _define(
        201,
        "no-source",
        Severity.error,
        "Write replacements as plain functions or classes.",
        "a lambda, or an object whose source cannot be found, cannot be copied into the generated file.",
        _NOTHING_GENERATED,
    ),
    _define(
        202,
        "bad-init",
        Severity.error,
        "Write `modify_init` functions that take and call the original `__init__`.",
        "without the call, the module lacks everything that upstream's `__init__` creates.",
        _NOTHING_GENERATED,
    ),
    _define(
        203,
        "injected",
        Severity.warning,
        "Pass `inject=True` for methods that upstream's class does not have.",
        "a misspelt name adds a method that nobody calls, and upstream's method stays as it is.",
        "the method is new on purpose. It is information when no name is similar, an error in strict configs.",
    ),
    _define(
        204,
        "inject-exists",
        Severity.warning,
        "Pass `inject=True` only for methods that upstream's class does not have.",
        "upstream has gained the method since the patch was written; the patch now replaces it.",
        "the replacement is intended; remove `inject=True`.",
    ),
    _define(
        205,
        "async-mismatch",
        Severity.error,
        "Replace an async function by an async one, and a plain function by a plain one.",
        "callers get a coroutine instead of a value, or await a value: TypeError.",
    ),
    _define(
        206,
        "aliased-decorator",
        Severity.info,
        "Register patches under the name of PatchConfig's method.",
        "a reader, and tools that search for `override_method`, do not find the patch.",
        "the alias is explained in the config.",
    ),
    _define(
        207,
        "duplicate-decorator",
        Severity.warning,
        "Do not repeat decorators that upstream's method has.",
        "the generated method keeps upstream's decorators, so the decorator is applied twice.",
    ),
    _define(
        208,
        "mutable-default",
        Severity.warning,
        "Use None instead of a list, dict or set as a default argument.",
        "all calls share one object; what one call adds is there in the next.",
        "upstream has the same default and the function does not change it.",
    ),
    _define(
        209,
        "no-change",
        Severity.warning,
        "Remove patches that are the same as upstream's code.",
        "the patch changes nothing today and hides upstream's next change.",
    ),
    _define(
        301,
        "dropped-parameter",
        Severity.warning,
        "Keep upstream's parameters.",
        "a caller that passes the parameter gets a TypeError, or `**kwargs` discards the value without a word.",
        "no caller passes the parameter; it is an error when one in the generated file does.",
    ),
    _define(
        302,
        "required-parameter",
        Severity.error,
        "Give parameters that callers do not pass a default.",
        "the call ends in a TypeError.",
        "every caller passes it; it is a warning when the file shows no call.",
    ),
    _define(
        303,
        "parameter-order",
        Severity.error,
        "Keep the order of upstream's parameters.",
        "callers that pass arguments by position pass them to other parameters.",
    ),
    _define(
        304,
        "base-signature",
        Severity.warning,
        "Take the parameters that the base class's method takes.",
        "code that calls the method of the base class passes what this one does not accept.",
        "nothing calls the method through the base class.",
    ),
    _define(
        305,
        "undocumented-parameter",
        Severity.warning,
        "Document every parameter of a method with `@auto_docstring`.",
        "transformers prints a warning about the parameter at every import.",
    ),
    _define(
        306,
        "output-fields",
        Severity.error,
        "Map output classes in `name_map` only to classes with the same fields.",
        "the constructor gets an unknown field, or a field such as `router_logits` is lost.",
    ),
    _define(
        307,
        "name-map-unused",
        Severity.info,
        "List only names in `name_map` that occur in the replaced code.",
        "the name was renamed or removed upstream, or it is misspelt.",
        "the same map serves several patches.",
    ),
    _define(
        308,
        "name-map-skipped",
        Severity.info,
        "Check identifiers that contain a name of `name_map` inside a word.",
        "patchgen renames whole words; other generators replace text anywhere.",
        "the identifier is about something else.",
    ),
    _define(
        401,
        "undefined-name",
        Severity.error,
        "Define or import every name that a patch uses.",
        "NameError, at import or in the first call that reaches the line.",
    ),
    _define(
        402,
        "excluded-reference",
        Severity.error,
        "Do not exclude definitions that the rest of the file uses.",
        "NameError, at import or in the first call that reaches the line.",
        "the name is used only in a quoted annotation; it is a warning then.",
    ),
    _define(
        403,
        "dead-helper",
        Severity.warning,
        "Exclude definitions that only excluded code used.",
        "the generated file carries code that nothing runs and everybody has to review.",
        "another module imports the definition from the generated file.",
    ),
    _define(
        404,
        "missing-import",
        Severity.error,
        "Add imports of modules and names that exist.",
        "ImportError when the generated file is imported.",
        "the module is installed only where the model runs; guard the import.",
    ),
    _define(
        405,
        "config-import",
        Severity.error,
        "Import in a patch config only what is installed.",
        "the config cannot be run, and its imports are copied into the generated file.",
    ),
    _define(
        406,
        "import-collision",
        Severity.warning,
        "Give each imported name and helper a name of its own.",
        "the later one replaces the earlier one for the whole file.",
        "both mean the same object. It is an error when a helper replaces an upstream definition.",
    ),
    _define(
        407,
        "nothing-dropped",
        Severity.info,
        "List only names in `drop_import_names` that upstream imports.",
        "upstream no longer imports the name, or it is misspelt.",
    ),
    _define(
        501,
        "version-mismatch",
        Severity.error,
        "Generate from a version of transformers that `transformers_version` allows.",
        "the patches were written for other code; what they copied may have changed.",
    ),
    _define(
        502,
        "version-unknown",
        Severity.warning,
        "Generate from a source that says its version when `transformers_version` is set.",
        "nobody knows whether the patches fit.",
        "the source is a checkout without metadata.",
    ),
    _define(
        503,
        "bad-version",
        Severity.error,
        "Write `transformers_version` as a version or a specifier, such as `>=5.9,<5.12`.",
        "the version is not compared with anything.",
    ),
    _define(
        601,
        "cannot-load",
        Severity.error,
        "Write configs that load and assign `config = PatchConfig(...)` at module level.",
        "nothing is generated.",
        _NOTHING_GENERATED,
    ),
    _define(
        602,
        "unreadable",
        Severity.error,
        "Use the methods of PatchConfig with plain values.",
        "the config computes its patches, so it has to be run; `omni-kit check` runs nothing that it checks.",
        _NOTHING_GENERATED,
    ),
    _define(
        603,
        "no-source-module",
        Severity.error,
        "Patch a source module that is installed and can be read.",
        "there is no upstream code to patch.",
        _NOTHING_GENERATED,
    ),
    _define(
        604,
        "invalid-python",
        Severity.error,
        "Write patches that make valid Python.",
        "the generated file cannot be imported.",
        _NOTHING_GENERATED,
    ),
    _define(
        605,
        "format-failed",
        Severity.error,
        "Write patches that ruff can format.",
        "unformatted files differ from those that others generate.",
        _NOTHING_GENERATED,
    ),
    _define(
        606,
        "foreign-file",
        Severity.error,
        "Keep other files, and links, out of the generated file's place.",
        "patchgen does not overwrite a file that no generator wrote, nor the target of a link.",
        "never; move the file, or pass `--force`.",
    ),
    _define(
        701,
        "stale",
        Severity.error,
        "Commit what the config generates: the code, and the diff beside it; comments and layout do not count.",
        "a manual change is lost at the next run, and a changed config has no effect until it runs.",
        "the file was generated from another transformers; check with that one.",
    ),
    _define(
        702,
        "not-generated",
        Severity.error,
        "Commit the generated file of every config.",
        "the model cannot be imported.",
        "the file is generated when the package is built.",
    ),
    _define(
        703,
        "same-output",
        Severity.error,
        "Give each config an output file of its own.",
        "the config that runs last overwrites the other's file.",
    ),
    _define(
        704,
        "orphan",
        Severity.error,
        "Delete generated files whose config is gone.",
        "nothing regenerates the file, so it keeps upstream's old code forever.",
        "the config is kept in another repository.",
    ),
)

DEFINITIONS: Mapping[str, Definition] = {one.name: one for one in _ALL}
"""Code -> what it means."""
IDS: Mapping[str, Definition] = {one.id: one for one in _ALL}
"""ID -> what it means."""
