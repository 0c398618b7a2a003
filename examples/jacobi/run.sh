#!/usr/bin/env bash
# Jacobi decoding of the shipped model: table of methods, grid of guesses, threads, pictures.
# An interrupted benchmark resumes.
set -euo pipefail

usage() {
    cat <<'END'
usage: run.sh CORPUS OUTPUT

  CORPUS   folder with train, dev and test .en and .es (plain or .gz)
  OUTPUT   where everything goes

Settings, as variables: MODELS=checkpoints/pydocs-en-es, SRC=en TGT=es, THREADS=2 (for the
scaling experiment 1 to that many), SENTENCES=600 (of the test set), PYTHON=python.

example:
  examples/jacobi/run.sh corpora/pydocs/en-es work
END
}

[ "${1:-}" != --help ] || { usage; exit; }
[ $# -ge 2 ] || { usage; exit 1; }
corpus=$1 output=$2
src=${SRC:-en} tgt=${TGT:-es} threads=${THREADS:-2} sentences=${SENTENCES:-600}
python=${PYTHON:-python}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
models=${MODELS:-$root/checkpoints/pydocs-en-es}
mkdir -p "$output/results"

. "$root/examples/steps.sh"

step "subwords and binary data, with the model's"
"$python" "$root/data_scripts/prepare_subwords.py" -s "$src" -t "$tgt" --output "$output/data" \
    --train "$corpus/train" --valid "$corpus/dev" --test "$corpus/test" \
    --subword-model "$models/spm.model" --dictionary "$models/dict.$src.txt"

# OpenMP would give the threads of a process less, if it were told nothing.
export OMP_NUM_THREADS=$threads
bench() {
    name=$1
    shift
    specdec-bench "$output/data/bin" -s "$src" -t "$tgt" --path "$models/verifier.pt" \
        --output "$output/$name" --resume --draft-rows 0 "$@"
    "$python" "$root/data_scripts/collect_runs.py" "$output/results/$name.json" \
        --command "$(command_line "examples/jacobi/run.sh CORPUS OUTPUT" MODELS SRC TGT SENTENCES)" \
        "$output/$name"
}

step "the three methods beside fairseq's search and our greedy decoding"
bench methods --threads "$threads" --sentences "$sentences" --repeats 3 \
    --reference "$output/data/raw/test.$tgt" \
    --methods "fairseq beam 5,fairseq beam 1,greedy,hybrid-jacobi,gs-jacobi,jacobi"

step "every window, initial guess and block size"
bench guesses --threads "$threads" --sentences "$(((sentences + 1) / 2))" --sweep jacobi --block-sizes 3,5,10 \
    --methods "fairseq beam 1,greedy,gs-jacobi"

step "threads"
bench threads --sweep threads --threads "$(seq -s, 1 "$threads")" --sentences "$(((sentences + 5) / 6))" \
    --methods "fairseq beam 1,greedy,hybrid-jacobi,gs-jacobi"

step "a page to step through the iterations"
cat >"$output/sentences.txt" <<'END'
Returns true if the file was closed before, otherwise false.
The name of a module may not contain a dot.
END
specdec-ddgviz "$output/data/bin" -s "$src" -t "$tgt" --path "$models/verifier.pt" \
    --input "$output/sentences.txt" --sentencepiece "$models/spm.model" --output "$output/ddgviz"
