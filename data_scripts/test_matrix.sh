#!/usr/bin/env bash
# Tests on other versions of Python, PyTorch and NumPy, each in an environment of its own.
set -euo pipefail

usage() {
    cat <<'END'
usage: test_matrix.sh FOLDER PYTHON/TORCH/NUMPY... -- TESTS

  FOLDER               for the environments, which are reused
  PYTHON/TORCH/NUMPY   versions, such as 3.12/2.6.0/1.26.4; "newest" is what pip takes
  TESTS                options and paths for pytest

A Python that is not there is skipped with a sentence. The exit status is 1 if any tests failed.

example:
  data_scripts/test_matrix.sh build/matrix 3.11/2.6.0/1.26.4 3.14/newest/newest -- tests/engine
END
}

[ "${1:-}" != --help ] || { usage; exit; }
[ $# -ge 4 ] || { usage >&2; exit 1; }
folder=$1
shift

# A Python of a version that starts: that of the system, or of pyenv, whose stubs may not start.
python_of() {  # VERSION
    local each
    for each in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if "$each" -c 'import ensurepip' 2>/dev/null; then
            echo "$each"
            return
        fi
    done
}

pinned() {  # PACKAGE VERSION
    [ "$2" = newest ] && echo "$1" || echo "$1==$2"
}

entries=()
while [ "${1---}" != -- ]; do
    entries+=("$1")
    shift
done
[ $# -ge 2 ] || { echo "test_matrix.sh: give -- and TESTS behind the versions." >&2; exit 1; }
shift

failed=0
for entry in "${entries[@]}"; do
    IFS=/ read -r version torch numpy <<<"$entry"
    python=$(python_of "$version")
    if [ -z "$python" ]; then
        echo "== $entry is skipped: python$version is not there"
        continue
    fi
    echo "== Python $version, PyTorch $torch, NumPy $numpy"
    venv=$folder/$version-torch-$torch-numpy-$numpy
    [ -e "$venv/bin/python" ] || "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        "$(pinned torch "$torch")" "$(pinned numpy "$numpy")"
    make VENV="$venv" "$venv/.specdec-test"
    "$venv/bin/python" -c 'import numpy, torch; print("PyTorch", torch.__version__, "NumPy", numpy.__version__)'
    "$venv/bin/python" -m pytest "$@" || failed=1
done
exit "$failed"
