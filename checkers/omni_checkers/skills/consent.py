"""Words with which a skill requires the user's consent, or forbids an action."""

import re

CONFIRMS = re.compile(
    r"\b(?:ask|confirm|confirmation|approv\w+|permission|consent|wait for (?:a )?yes|"
    r"only (?:if|when|after)\b[^.\n]*\buser\b)",
    re.IGNORECASE,
)
FORBIDS = re.compile(r"\b(?:never|do not|don't|must not|avoid)\b", re.IGNORECASE)
