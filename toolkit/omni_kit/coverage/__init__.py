"""Every model of a library through the whole path into a framework: proven, or why not; and on every version.

python -m omni_kit.coverage language|denoisers [NAME ...] [--into FILE]
python -m omni_kit.coverage ports|conversions [OWNER/NAME ...] [--into FILE]
python -m omni_kit.coverage handwritten [NAME ...] [--into FILE]
python -m omni_kit.coverage facts [--quick] [--like FILE] [--into FILE]
python -m omni_kit.coverage versions BASE OTHER ... [--into FILE]
"""
