"""Decoding methods: a folder each, with its options, its drafter, its kernel and its cost.

Every folder here is imported, so that its ``method.py`` registers itself.
"""

import importlib
import pkgutil

#: Help lists the methods that need nothing first.
_FIRST = ["greedy", "self_draft"]

for _folder in [*_FIRST, *(each.name for each in pkgutil.iter_modules(__path__) if each.ispkg)]:
    importlib.import_module(f"{__name__}.{_folder}.method")
