"""Installation of diffusers."""

INSTALL_DIFFUSERS = "pip install diffusers"
