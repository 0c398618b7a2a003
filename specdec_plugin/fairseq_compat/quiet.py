"""Keeps libraries quiet that would log on every start.

fairseq lets every logger speak. Then hydra would name its variables, and matplotlib its fonts. A
task of fairseq, which makes speech, asks for tensorboardX, which the plugin has no use for.
It asks while fairseq is imported, so this module is imported before.
"""

import logging

#: A notice that nobody needs, and its logger.
_NOTICE, _LOGGER = "Please install tensorboardX", "fairseq.tasks.text_to_speech"


def _is_wanted(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_NOTICE)


logging.getLogger("hydra").setLevel(logging.WARNING)
logging.getLogger("matplotlib").setLevel(logging.WARNING)
logging.getLogger(_LOGGER).addFilter(_is_wanted)
