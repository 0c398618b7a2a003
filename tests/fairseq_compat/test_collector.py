"""The garbage collector does not look through what was imported."""

from tests.support.command_lines import run_cli

PARSE = """
import gc
from fairseq import options
parser = options.get_generation_parser(default_task="specdec_translation")
unfrozen = len(gc.get_objects())
options.parse_args_and_arch(parser, {arguments})
print(unfrozen, len(gc.get_objects()), gc.get_freeze_count())
"""


def test_a_parsed_command_line_freezes_what_exists():
    arguments = ["data", "--path", "model.pt", "--task", "specdec_translation"]
    arguments += ["--user-dir", "specdec_plugin", "--decoding", "greedy"]
    program = "import specdec_plugin\n" + PARSE.format(arguments=arguments)
    found = run_cli(["python", "-c", program], fresh=True)
    before, after, frozen = map(int, found.stdout.split())
    assert before > 100_000 > after and frozen >= before
