"""Diagnostics of check, patchgen and check-layout: IDs, severities, documentation, suppression, formats."""
