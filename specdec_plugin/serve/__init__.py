"""``specdec-serve``: translations over HTTP, and a page to try a model on."""
