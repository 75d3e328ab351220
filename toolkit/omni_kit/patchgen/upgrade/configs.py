"""Upgrades patch configs: merges every patch, checks the result by generating it, and reports conflicts."""

import ast
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.files import files_matching, write_atomic
from omni_kit.patchgen.apply import Applied
from omni_kit.patchgen.diagnostics import Diagnostic
from omni_kit.patchgen.fragment import Fragment, NoSource, fragment_of
from omni_kit.patchgen.generate import generate
from omni_kit.patchgen.loader import LoadedConfig, find_config, load_config
from omni_kit.patchgen.locate import Libraries, package_of, unpacked_library
from omni_kit.patchgen.project import find_project
from omni_kit.patchgen.run import draft_configs
from omni_kit.patchgen.scopes import scopes_of
from omni_kit.patchgen.source import SourceModule, read_source
from omni_kit.patchgen.spans import Edit, splice
from omni_kit.patchgen.upgrade.code import Code, FunctionNode, dump
from omni_kit.patchgen.upgrade.importing import add_import, follow_imports, import_beside, imports_from
from omni_kit.patchgen.upgrade.marks import mark_of, marks_in
from omni_kit.patchgen.upgrade.neighbours import changed_results, functions_of, lost_members, new_readers
from omni_kit.patchgen.upgrade.outcome import Clash, ConfigOutcome, PatchOutcome, UpgradeResult
from omni_kit.patchgen.upgrade.patches import Proposal, Versions, adopt, propose
from omni_kit.patchgen.upgrade.registration import DEFINING, ConfigFile, effects_of
from omni_kit.patchgen.upgrade.renames import renamed
from omni_kit.pysource.source import without_collection

_ROUNDS = 4  # times that what does not generate is taken back


@dataclass
class _Use:
    """A patch of one config, with its text and what it becomes."""

    config: "_Config"
    applied: Applied
    original: Fragment | None
    proposal: Proposal

    @property
    def key(self) -> tuple[Path, int]:
        """File and line of the patch's text, or of its registration if the text is from elsewhere."""
        if self.original is not None:
            return self.original.path, self.original.line
        return self.place

    @property
    def needed(self) -> tuple[str, str] | None:
        """Return module and name of what its new text needs from outside of upstream."""
        return None if self.proposal.clashes else self.proposal.imports

    @property
    def place(self) -> tuple[Path, int]:
        """Return where it is registered."""
        origin = self.applied.patch.origin
        return (Path(origin.path), origin.line) if origin else (self.config.loaded.path, 0)


@dataclass
class _Config:
    """A config with its versions of upstream and its patches."""

    outcome: ConfigOutcome
    loaded: LoadedConfig
    versions: Versions
    roots: tuple[Path, ...]
    uses: list[_Use] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    excluded: dict[str, str] = field(default_factory=dict)


def upgrade_configs(
    configs: Sequence[str | Path],
    before: Path,
    after: Path | None,
    library: str = "transformers",
    *,
    write: bool = True,
) -> UpgradeResult:
    """Rewrite configs for a newer upstream.

    A config is written only where every change of it is a clean merge; what clashes stays as it was, and is marked.

    Args:
        configs: files or dotted modules.
        before, after: unpacked versions of the library; the installed one without `after`.
        write: False only says what would be written.

    Raises:
        BadInput: no config is given, or a path holds no such package.
    """
    if not configs:
        raise BadInput("no patch configs to upgrade", "name configs, or pass --all with the --root that contains them")
    old = {library: unpacked_library(library, before)}
    new = {library: unpacked_library(library, after)} if after else {}
    names = tuple(f"{library} {Libraries(side).version_of(library)}" for side in (old, new))
    result = UpgradeResult(names[0], names[1])
    with without_collection():
        upgrade = _Upgrade(old, new, (names[0], names[1]))
        for config in configs:
            upgrade.read(config, result)
        upgrade.settle()
        for one in result.configs:
            if write and one.text != one.before:
                write_atomic(one.path, one.text)
    return result


class _Upgrade:
    """All configs of one upgrade: they share patches, so they are settled together."""

    def __init__(self, old: dict[str, Path], new: dict[str, Path], names: tuple[str, str]) -> None:
        self.old, self.new, self.names = old, new, names
        self.configs: list[_Config] = []
        self.versions: dict[str, Versions] = {}
        self.before: dict[Path, set[tuple[str, tuple[str, ...]]]] = {}
        self.refused: dict[tuple[Path, int], list[Clash]] = defaultdict(list)

    def read(self, config: str | Path, result: UpgradeResult) -> None:
        """Read one config and merge its patches."""
        started = time.perf_counter()
        project = find_project(Path(config).parent if Path(config).is_file() else Path.cwd())
        roots = (project.import_root,) if project else ()
        path = find_config(config, Libraries(roots=roots))
        outcome = ConfigOutcome(package_of(path)[1], path, before=path.read_text(encoding="utf-8"))
        outcome.text = outcome.before
        result.configs.append(outcome)
        roots = (*roots, package_of(path)[0])
        try:
            loaded = load_config(path, Libraries(self.old, roots))
            outcome.source_module = loaded.config.source_module
            versions = self._versions(loaded.config.source_module, roots)
        except BadInput as why:
            outcome.error = why.message
            return
        known = _Config(outcome, loaded, versions, roots)
        known.excluded = _moved_exclusions(loaded, versions)
        outcome.notes += [
            f"{name}: {f'upstream calls it {now}' if now else 'upstream no longer defines it'}; the exclusion follows"
            for name, now in known.excluded.items()
        ]
        libraries = Libraries(self.old, roots)
        waiting = {
            one.target: one.versions for one in marks_in(outcome.before) if one.versions != " -> ".join(self.names)
        }
        made = generate(loaded, versions.before.module, libraries)
        patched = {versions.renames.path(one.patch.target) for one in made.applied if one.done}
        for applied in made.applied:
            if applied.done:
                original = _original(applied, loaded, libraries)
                proposal = propose(applied, original, versions, patched)
                if applied.patch.target in waiting:
                    reason = f"the upgrade {waiting[applied.patch.target]} left an unresolved conflict here"
                    proposal = Proposal(proposal.place, original.text if original else "", [Clash(reason)])
                known.uses.append(_Use(known, applied, original, proposal))
        for use in known.uses:
            if use.proposal.clashes and use.proposal.place.definition is None and use.original is not None:
                owner = use.applied.owner_path
                others = [one.proposal.text for one in known.uses if one is not use and one.applied.owner_path == owner]
                use.proposal = adopt(use.applied, use.original, versions, patched, others) or use.proposal
        self._compare(known)
        self.configs.append(known)
        outcome.seconds = time.perf_counter() - started

    def _compare(self, config: _Config) -> None:
        """Make patches conflicts that no longer fit their class, or what other patches of the config return."""
        versions = config.versions
        was: dict[str, FunctionNode] = {}
        now: dict[str, FunctionNode] = {}
        for use in config.uses:
            if use.original is not None:
                was.update(functions_of(use.proposal.place.target, use.original.text))
                now.update(functions_of(use.proposal.place.target, use.proposal.text))
        for use in config.uses:
            if versions.after is None or use.original is None or use.proposal.clashes or use.proposal.unneeded:
                continue
            old, new = use.applied.patch.target, use.proposal.place.target
            for path, node in functions_of(new, use.proposal.text).items():
                use.proposal.clashes += changed_results(path, node, was, now, versions.after)
            if new in now:  # a class that is replaced brings its own members
                sides = versions.before, versions.after
                use.proposal.clashes += lost_members((old, new), now[new], *sides, now)
                use.proposal.clashes += new_readers((old, new), now[new], *sides, now)
            if use.proposal.clashes:
                use.proposal.text = use.original.text

    def _versions(self, module: str, roots: tuple[Path, ...]) -> Versions:
        if module not in self.versions:
            sides = Libraries(self.old, roots), Libraries(self.new, roots)
            before = read_source(module, sides[0])
            after = read_source(module, sides[1]) if sides[1].file_of(module) else None
            self.versions[module] = Versions.of(before, after, sides)
        return self.versions[module]

    def settle(self) -> None:
        """Write every file in memory, generate it, and take back what does not generate."""
        self._agree()
        for _ in range(_ROUNDS):
            texts = self._texts()
            wrong = self._generated(texts)
            if not self._take_back(wrong):
                break
        for config in self.configs:
            config.outcome.text = texts.get(config.loaded.path, config.outcome.before)
            config.outcome.notes += [f"{one.code}: {one.message}" for one in wrong.get(config.loaded.path, ())]
            if wrong.get(config.loaded.path) and not config.outcome.count("conflict"):
                config.outcome.error = wrong[config.loaded.path][0].message

    def _agree(self) -> None:
        """Uses of one text have to come to the same result; else it stays, and all of them clash."""
        for uses in self._groups().values():
            self._map_names(uses)
            texts = {dump(Code(one.proposal.text).node) for one in uses if one.original is not None}
            clashing = [one for one in uses if one.proposal.clashes]
            if len(texts) > 1 or (clashing and len(clashing) < len(uses)):
                others = ", ".join(sorted({one.applied.patch.target for one in uses}))
                for one in uses:
                    if not one.proposal.clashes:
                        reason = (
                            clashing[0].proposal.clashes[0].reason if clashing else "upstream changed them differently"
                        )
                        one.proposal.clashes.append(Clash(f"one text serves {others}: {reason}"))
                    one.proposal.text = one.original.text if one.original else ""

    def _map_names(self, uses: Sequence[_Use]) -> None:
        """Give uses under a name_map the text of the one without, where only names of the module differ."""
        plain = [one for one in uses if not one.applied.patch.name_map]
        if len(plain) != 1 or any(one.original is None or one.proposal.clashes for one in uses):
            return
        for use in uses:
            names = renamed(plain[0].proposal.text, use.proposal.text) if use is not plain[0] else None
            if names:
                use.proposal.text, use.proposal.names = plain[0].proposal.text, names

    def _groups(self) -> dict[tuple[Path, int], list[_Use]]:
        groups: defaultdict[tuple[Path, int], list[_Use]] = defaultdict(list)
        for config in self.configs:
            for use in config.uses:
                groups[use.key].append(use)
        return groups

    def _texts(self) -> dict[Path, str]:
        """Return the new text of every file that holds a patch or registers one."""
        files: dict[Path, ConfigFile] = {}
        done: set[tuple[str, Path, int]] = set()
        for key, uses in self._groups().items():
            clashes = self.refused.get(key, [])
            for use in uses:
                if clashes and not use.proposal.clashes:
                    use.proposal.clashes += clashes
                    use.proposal.text = use.original.text if use.original else ""
            whole = all(one.proposal.unneeded for one in uses) and not self._named_elsewhere(uses)
            for use in uses:
                self._edit(use, files, done, whole=whole)
        for config in self.configs:
            config.outcome.patches = [self._outcome(use) for use in config.uses]
            file = files.setdefault(config.loaded.path, ConfigFile(config.loaded.path))
            file.exclude(config.excluded)
            classes, after = config.versions.results, config.versions.after
            file.rebase(classes, {name: bool(after and after.module.get(name)) for name in classes.values()})
        texts = {path: splice(file.source.text, [*file.edits, *self._answered(file)]) for path, file in files.items()}
        return {path: self._imports(path, text, files[path]) for path, text in texts.items()}

    def _answered(self, file: ConfigFile) -> Iterator[Edit]:
        """Edits that take out the marks of an earlier run of this upgrade."""
        versions = " -> ".join(self.names)
        yield from (Edit(one.start, one.end, "") for one in marks_in(file.source.text) if one.versions == versions)

    def _named_elsewhere(self, uses: Sequence[_Use]) -> bool:
        """Return whether an import or module-level code names the definition, other than its own registrations."""
        original = uses[0].original
        if original is None:
            return True
        places = {use.place for use in uses}
        for path in {config.loaded.path for config in self.configs} | {original.path}:
            for node in ConfigFile(path).source.tree.body:
                if (path, getattr(node, "lineno", 0)) in places or isinstance(node, DEFINING):
                    continue
                named = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
                named |= {one.name for one in ast.walk(node) if isinstance(one, ast.alias)}
                if original.name in named:
                    return True
        return False

    def _edit(self, use: _Use, files: dict[Path, ConfigFile], done: set[tuple[str, Path, int]], *, whole: bool) -> None:
        def file(path: Path) -> ConfigFile:
            return files.setdefault(path, ConfigFile(path))

        def once(what: str, place: tuple[Path, int]) -> bool:
            fresh = (what, *place) not in done
            done.add((what, *place))
            return fresh

        proposal, place = use.proposal, use.place
        if proposal.clashes:
            if place[1] and once("mark", place) and "which is still open" not in proposal.clashes[0].reason:
                file(place[0]).mark(place[1], mark_of(self._outcome(use), self.names))
            if use.original is not None and proposal.text != use.original.text and once("text", use.key):
                file(use.key[0]).rewrite(use.key[1], proposal.text)
            return
        if proposal.unneeded:
            if once("drop", place):
                file(place[0]).drop(place[1], whole=whole)
            return
        old, new = use.applied.patch.target, proposal.place.target
        if old != new and place[1] and once("target", place) and not file(place[0]).retarget(place[1], old, new):
            proposal.clashes.append(Clash(f"upstream calls it {new}, and the config does not spell its target"))
            return
        if (proposal.place.inherited or proposal.place.dropped) and once("inject", place):
            file(place[0]).inject(place[1])
        if proposal.place.imported and once("helper", place) and not file(place[0]).as_helper(place[1], new):
            proposal.clashes.append(Clash(f"upstream imports {new} from {proposal.place.imported} now"))
            return
        if proposal.names and once("names", place):
            file(place[0]).map_names(place[1], proposal.names)
        if use.original is not None and once("text", use.key):
            file(use.key[0]).rewrite(use.key[1], proposal.text, proposal.decorators)

    def _imports(self, path: Path, text: str, file: ConfigFile) -> str:
        """Return the imports of one file, and what its configs add to theirs."""
        mine = [one for one in self.configs if one.loaded.path == path]
        users = [one for one in self.configs if path in one.loaded.siblings]
        upstreams = [one.versions.after for one in (*mine, *users) if one.versions.after is not None]
        used = [one for config in self.configs for one in config.uses if one.needed is not None]
        for home, name in dict.fromkeys(one.needed for one in used if one.key[0] == path and one.needed):
            text = import_beside(text, home, name)
        if upstreams:
            has = self._has(text, (mine or users)[0])
            text = follow_imports(text, file.source.text, list(dict.fromkeys(upstreams)), has)
        for config in mine:
            needed = (one.needed for one in config.uses if one.needed is not None)
            extra = [*config.extra, *(f'config.add_import("{home}", names=["{name}"])\n' for home, name in needed)]
            if extra:
                module = SourceModule(path.stem, path, text)
                at = _behind_additions(module)
                text = splice(text, [Edit(at, at, "".join(dict.fromkeys(extra)))])
        return text

    def _has(self, text: str, config: _Config) -> dict[str, bool]:
        """For each name that a config imports from the upgraded library, whether the newer one has it."""
        libraries, found = Libraries(self.new, config.roots), {}
        for _, module, names in imports_from(ast.parse(text)):
            if module.partition(".")[0] in self.old:
                path = libraries.file_of(module)
                bound = scopes_of(path.read_text(encoding="utf-8")) if path else None
                lazy = path is not None and path.name == "__init__.py"
                for name in names:
                    found[f"{module}.{name}"] = lazy or bool(bound and (bound.has_star or name in bound.bound))
        return found

    def _generated(self, texts: dict[Path, str]) -> dict[Path, list[Diagnostic]]:
        """Return the errors of each config with the newer upstream that it did not have with the older."""
        with tempfile.TemporaryDirectory(prefix="upgrade-") as folder:
            copies = {config.loaded.path: _copied(config, texts, Path(folder)) for config in self.configs}
            found = {}
            for config in self.configs:
                known = self._wrong_before(config.loaded.path)
                now = draft_configs([copies[config.loaded.path]], unpacked=self.new)
                errors = [one for result in now for one in result.diagnostics if one.severity == "error"]
                found[config.loaded.path] = [one for one in errors if (one.code, one.names) not in known]
            return found

    def _wrong_before(self, path: Path) -> set[tuple[str, tuple[str, ...]]]:
        """Return the errors that a config already had with the older upstream."""
        if path not in self.before:
            was = draft_configs([path], unpacked=self.old)
            self.before[path] = {(one.code, one.names) for result in was for one in result.diagnostics}
        return self.before[path]

    def _take_back(self, wrong: dict[Path, list[Diagnostic]]) -> bool:
        """Fix what can be fixed: an import that upstream dropped comes back; a patch that does not generate clashes."""
        changed = False
        for config in self.configs:
            for found in wrong.get(config.loaded.path, ()):
                if found.code == "undefined-name" and self._bring_back(config, found):
                    changed = True
                    continue
                for use in config.uses:
                    target = use.proposal.place.target
                    named = any(f"{target}{end}" in found.message for end in (":", ",", " takes no "))
                    guilty = named or use.applied.patch.target in found.names
                    if guilty and not use.proposal.clashes and use.key not in self.refused:
                        self.refused[use.key].append(Clash(found.message, "", "", ""))
                        changed = True
        return changed

    def _bring_back(self, config: _Config, found: Diagnostic) -> bool:
        new = config.versions.after
        if new is None or not found.names:
            return False
        line = add_import(found.names[0], config.versions.before, new)
        if line is None or line in config.extra:
            return False
        config.extra.append(line)
        config.outcome.notes.append(f"{found.names[0]}: upstream no longer imports it; the config adds the import")
        return True

    def _outcome(self, use: _Use) -> PatchOutcome:
        proposal, patch = use.proposal, use.applied.patch
        found = PatchOutcome(proposal.place.target, path=use.place[0], line=use.place[1])
        found.was = patch.target if patch.target != found.target else ""
        if proposal.clashes:
            found.status, found.reason, found.clashes = "conflict", proposal.clashes[0].reason, proposal.clashes
            node: ast.AST = Code(use.original.text).node if use.original else ast.Module([], [])
            found.effects = effects_of(proposal.clashes, node, found.target, self.names)
        elif proposal.unneeded:
            found.status, found.reason = "dropped", proposal.unneeded
        elif proposal.how:
            found.status, found.reason = "merged", proposal.how
        return found


def _moved_exclusions(loaded: LoadedConfig, versions: Versions) -> dict[str, str]:
    """Return names that a config keeps out of its output and upstream no longer defines, each with its newer name or
    none.
    """
    if versions.after is None:
        return {}
    had = [name for name in loaded.config.exclude if versions.before.module.candidates(name)]
    gone = [name for name in had if not versions.after.module.candidates(name)]
    renamed = {name: versions.renames.path(name) for name in gone}
    return {name: now if now != name else "" for name, now in renamed.items()}


def _original(applied: Applied, loaded: LoadedConfig, libraries: Libraries) -> Fragment | None:
    patch = applied.patch
    if patch.replacement is None:
        return None
    try:
        return fragment_of(patch.replacement, loaded.registrations, libraries)
    except NoSource:
        return None


def _behind_additions(module: SourceModule) -> int:
    """Return the offset behind the last `config.add_import(...)`, or behind `config = ...`."""
    last = 0
    for node in module.tree.body:
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="add_import"))):
                last = node.end_lineno or node.lineno
            case ast.Assign(targets=[ast.Name(id="config")]):
                last = max(last, node.end_lineno or node.lineno)
    return module.line_start(last + 1)


def _copied(config: _Config, texts: dict[Path, str], folder: Path) -> Path:
    """Return a copy of a config and its siblings as the upgrade leaves them, under the same dotted name."""
    for path in [config.loaded.path, *config.loaded.siblings]:
        root, _ = package_of(path)
        for one in _around(path):
            place = folder / one.relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            if one in texts:
                place.write_text(texts[one], encoding="utf-8")
            elif not place.exists():
                shutil.copyfile(one, place)
        for parent in path.relative_to(root).parents:
            if str(parent) != ".":
                (folder / parent / "__init__.py").touch()
    return folder / config.loaded.path.relative_to(package_of(config.loaded.path)[0])


def _around(path: Path) -> Iterator[Path]:
    """Yield the Python files next to a config."""
    yield path
    yield from (one for one in files_matching(path.parent, "*.py") if one != path and one.name != "__init__.py")
