"""Lets Hydra compose the same configurations without what it would compute again each time.

fairseq composes one for each command line. In the tests that took an eighth of all time.
"""

import copy
import importlib
import sys
from typing import Any, Dict, Optional, Tuple

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser

_initialize = importlib.import_module("hydra.initialize")
_parse_rule = OverridesParser.parse_rule
_caller = _initialize.detect_calling_file_or_module_from_stack_frame
_parsed: Dict[Tuple[str, str], Any] = {}
_callers: Dict[str, Tuple[Optional[str], Optional[str]]] = {}


def _parse_once(parser: OverridesParser, text: str, rule: str) -> Any:
    """What a text means; a copy, because Hydra sets attributes of it."""
    if (text, rule) not in _parsed:
        _parsed[text, rule] = _parse_rule(parser, text, rule)
    return copy.copy(_parsed[text, rule])


def _look_once(depth: int) -> Tuple[Optional[str], Optional[str]]:
    """The calling file and module. Hydra reads the sources of the whole stack to find them."""
    file = sys._getframe(depth).f_code.co_filename
    if file not in _callers:
        _callers[file] = _caller(depth + 1)
    return _callers[file]


def _itself(store: ConfigStore, memo: Dict[int, Any]) -> ConfigStore:
    """The store is a singleton, and copies what it hands out."""
    return store


def install() -> None:
    """Change Hydra in this process, and in its copies."""
    OverridesParser.parse_rule = _parse_once
    setattr(_initialize, _caller.__name__, _look_once)
    ConfigStore.__deepcopy__ = _itself


def warm_up() -> None:
    """Compose the defaults of fairseq's programs, whose texts are those of most command lines."""
    for parser, *arguments in (
        (options.get_generation_parser(),),
        (options.get_interactive_generation_parser(),),
        (options.get_training_parser(), "--arch=transformer", "--max-tokens=1"),
    ):
        convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, ["data", *arguments]))
