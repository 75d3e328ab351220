"""Rewritings of upstream's own functions: some keep what is computed, some change it. torch decides which do."""
