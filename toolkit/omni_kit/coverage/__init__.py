"""Every model of a library through the whole path into a framework: proven, or why not.

python -m omni_kit.coverage language|denoisers [NAME ...] [--into FILE]
"""
