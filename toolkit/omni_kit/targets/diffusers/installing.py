"""How diffusers is installed."""

INSTALL_DIFFUSERS = "pip install diffusers"
