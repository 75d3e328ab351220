"""The cases of `if` and `elif` in three versions of one statement, matched by their tests."""

import ast
from dataclasses import dataclass

from omni_kit.patchgen.upgrade.code import dump, dumps

Case = ast.If


@dataclass(frozen=True)
class Cases:
    """The matched cases of one statement.

    Attributes:
        shared: the cases that all three versions have.
        gone: the patch's cases that upstream dropped.
        last: the last case of each version; an `else` is theirs.
    """

    shared: list[tuple[Case, Case, Case]]
    gone: list[Case]
    last: tuple[Case, Case, Case]


def match_cases(b: Case, o: Case, t: Case) -> Cases | None:
    """Return the matched cases; None if tests alone do not explain what both changed.

    A case that the patch leaves out stays out, whatever upstream does in it and calls what it tests for. A case that
    is new in upstream, or that upstream drops and the patch changes, is not explained.
    """
    chains = [_chain(one) for one in (b, o, t)]
    was, mine, now = ({dump(case.test): case for case in chain} for chain in chains)
    twice = any(len(chain) > len(known) for chain, known in zip(chains, (was, mine, now), strict=True))
    if twice or was.keys() in (mine.keys(), now.keys()) or not dump(b.test) == dump(o.test) == dump(t.test):
        return None
    left_out = [dumps(was[test].body) for test in was.keys() - mine.keys() - now.keys()]
    new = [dumps(now[test].body) for test in now.keys() - was.keys()]
    gone = [test for test in mine if test in was and test not in now]
    changed = any(dumps(mine[test].body) != dumps(was[test].body) for test in gone)
    if changed or len(new) > len(left_out) or any(body not in left_out for body in new):
        return None
    shared = [(was[test], mine[test], now[test]) for test in mine if test in was and test in now]
    return Cases(shared, [mine[test] for test in gone], (chains[0][-1], chains[1][-1], chains[2][-1]))


def _chain(node: Case) -> list[Case]:
    match node.orelse:
        case [ast.If() as other] if other.col_offset == node.col_offset:
            return [node, *_chain(other)]
    return [node]
