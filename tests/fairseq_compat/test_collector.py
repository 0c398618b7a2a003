"""The garbage collector does not look through what was imported."""

import gc

from specdec_plugin.fairseq_compat.collector import paused
from tests.support.command_lines import run_cli

PARSE = """
import gc
from fairseq import options
parser = options.get_generation_parser(default_task="specdec_translation")
gc.collect()
unfrozen = len(gc.get_objects())
options.parse_args_and_arch(parser, {arguments})
print(unfrozen, len(gc.get_objects()), gc.get_freeze_count())
"""
PROGRAM = """
import gc
from specdec_plugin.fairseq_compat.interrupts import console_program
gc.collect()
unfrozen = len(gc.get_objects())
@console_program
def main(argv=None):
    print(unfrozen, len(gc.get_objects()), gc.get_freeze_count())
main()
"""


def figures(program):
    """The numbers that a program prints in a process of its own."""
    return map(int, run_cli(["python", "-c", program], fresh=True).stdout.split())


def test_a_parsed_command_line_freezes_what_exists():
    arguments = ["data", "--path", "model.pt", "--task", "specdec_translation"]
    arguments += ["--user-dir", "specdec_plugin", "--decoding", "greedy"]
    before, after, frozen = figures("import specdec_plugin\n" + PARSE.format(arguments=arguments))
    assert before > 100_000 > after and frozen >= before


def test_a_console_program_freezes_what_was_imported():
    before, after, frozen = figures(PROGRAM)
    assert before > 100_000 > after and frozen >= before


def test_no_collection_looks_through_imports():
    count = "gc.get_stats()[2]['collections']"
    program = f"import gc\nbefore = {count}\nimport specdec_plugin\n"
    program += f"print({count} - before, int(gc.isenabled()), gc.get_freeze_count())"
    assert list(figures(program)) == [0, 1, 0]


YOUNG = """
import gc
young = [0]
def note(phase, about):
    if phase == "start":
        young.append(len(gc.get_objects(0)))
gc.callbacks.append(note)
import specdec_plugin
made = [[] for _ in range(10 * gc.get_threshold()[0])]
print(max(young[1:]))
"""


def test_imports_are_old_when_the_next_collection_begins():
    assert next(figures(YOUNG)) < 20_000


def test_what_somebody_froze_stays_frozen():
    program = "import gc\ngc.freeze()\nimport specdec_plugin\nprint(gc.get_freeze_count())"
    assert next(figures(program)) > 1_000


def test_a_pause_leaves_the_collector_as_it_was():
    with paused():
        assert not gc.isenabled()
        with paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
