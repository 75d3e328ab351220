"""Move integrations to a newer upstream in one run: merge, generate, check, compare, and report the rest.

from omni_kit.upgrade import upgrade
result = upgrade(Path("plugins"), old, new)
result.proven        # nothing is left to a person, and every model passes every default level
"""

from omni_kit.upgrade.run import upgrade

__all__ = ["upgrade"]
