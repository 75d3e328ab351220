"""The pack of agent skills: finding, listing and checking them."""

from omni_kit.skillpack.skill import Skill, load_skills

__all__ = ["Skill", "load_skills"]
