"""DDGviz: which tokens are decoded in parallel, drawn iteration by iteration (paper 000, 3.5)."""

import logging

# fairseq lets every logger speak, and matplotlib would tell how it finds its fonts.
logging.getLogger("matplotlib").setLevel(logging.WARNING)
