#!/usr/bin/env bash
# Lets an installed fairseq import on Python 3.14 and newer.
set -euo pipefail

usage() {
    cat <<'END'
usage: mend_fairseq.sh PYTHON

  PYTHON   whose fairseq is mended, such as .venv/bin/python

fairseq recognises an optional option of a program by how Python prints its type. Python 3.14
prints "str | None" where earlier versions printed "typing.Optional[str]". fairseq then ends with
"TypeError: str | None is not callable". This script adds the new form to one line of fairseq. It
changes nothing where that line has it already.

example:
  data_scripts/mend_fairseq.sh .venv/bin/python
END
}

[ "${1:-}" != --help ] || { usage; exit; }
[ $# -eq 1 ] || { usage >&2; exit 1; }

# Found without importing fairseq, which fails, and not in the folder from which this is run.
folder=$("$1" -P -c '
import importlib.util
found = importlib.util.find_spec("fairseq")
print(found.submodule_search_locations[0] if found else "")')
[ -n "$folder" ] || { echo "$1 has no fairseq: install it first" >&2; exit 1; }
file=$folder/dataclass/utils.py
old='typestring.startswith("typing.Optional")'
new=$old' or typestring.endswith(" | None")'
if grep -qF "$new" "$file"; then
    echo "$file has the new form already"
elif grep -qF "$old" "$file"; then
    sed -i "s/$old/$new/" "$file"
    echo "$file is mended"
else
    echo "$file is of another version of fairseq: nothing was changed" >&2
    exit 1
fi
