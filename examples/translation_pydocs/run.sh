#!/usr/bin/env bash
# From raw text to a table of results: teacher, distilled data, verifier, drafter, benchmark.
# Every step is skipped when its output exists, and resumes when it was killed.
set -euo pipefail

usage() {
    cat <<'END'
usage: run.sh CORPUS OUTPUT [TEACHER]

  CORPUS   folder with train, dev and test .en and .es (plain or .gz)
  OUTPUT   where everything goes
  TEACHER  folder of an existing teacher (teacher.pt, spm.model, dict.en.txt):
           its subwords are used and no teacher is trained

Settings, as variables: SRC=en TGT=es, DEVICE (--cpu by default; empty for a GPU),
UPDATES_TEACHER=3122, UPDATES_VERIFIER=852, UPDATES_DRAFTER=7000, SHARDS=8, JOBS=1,
PYTHON=python, UNTIL=data or UNTIL=greedy to stop before the first model or the drafter,
SIZE=8000 subwords, LAYERS=3 of encoder and decoder, DIM=256,
DRAFTER_TEXT=FILE[:FILE...] further text in the source language, and DRAFTER_VARIANTS=N copies
of all of it with other words, which the verifier translates for the drafter's training, too,
DRAFTER_START=FILE, a drafter of the same shape to start from, PROCESSES=N that share each update,
DISTILLED=FILE with the teacher's output for each line of train, in pieces of its subwords
(plain or .gz), which is not decoded then; VERIFIER=folder of a trained verifier (verifier.pt
and dict.en.txt) of the same subwords, such as checkpoints/pydocs-en-es.

example:
  examples/translation_pydocs/run.sh corpora/pydocs/en-es work
END
}

[ "${1:-}" != --help ] || { usage; exit; }
[ $# -ge 2 ] || { usage; exit 1; }
corpus=$1 output=$2 given=${3:-}
src=${SRC:-en} tgt=${TGT:-es} device=${DEVICE---cpu}
python=${PYTHON:-python}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
plugin=$("$python" -m specdec_plugin)
mkdir -p "$output"

. "$root/examples/steps.sh"

# The lines of RAW/train and of DRAFTER_TEXT, each once, that are no lines of RAW/valid or RAW/test.
unseen_text() {  # RAW
    { cat "$1/train.$src" && { [ -z "${DRAFTER_TEXT:-}" ] || text_lines "$DRAFTER_TEXT"; }; } |
        LC_ALL=C grep -vxFf <(cat "$1/valid.$src" "$1/test.$src") | LC_ALL=C awk '!seen[$0]++'
}

step "subwords and binary data"
reuse=()
if [ -n "$given" ]; then
    reuse=(--subword-model "$given/spm.model" --dictionary "$given/dict.$src.txt")
fi
"$python" "$root/data_scripts/prepare_subwords.py" -s "$src" -t "$tgt" --size "${SIZE:-8000}" \
    --output "$output/data" --train "$corpus/train" --valid "$corpus/dev" --test "$corpus/test" \
    ${reuse[@]+"${reuse[@]}"}
[ "${UNTIL:-}" != data ] || exit 0

small_shape "${LAYERS:-3}" "${LAYERS:-3}"
small_training

if [ -n "$given" ]; then
    teacher=$given/teacher.pt
else
    step "teacher"
    teacher=$output/teacher.pt
    train_translator "$output/data/bin" "$output/teacher" "${UPDATES_TEACHER:-3122}" 1
fi

step "distilled data (Seq-KD)"
data=$output/distilled/bin
if [ -n "${DISTILLED:-}" ]; then
    [ -e "$data/dict.$tgt.txt" ] || "$python" "$root/data_scripts/finish_distillation.py" \
        "$output/data/bin" --train "$output/data/pieces/train" --valid "$output/data/pieces/valid" \
        --test "$output/data/pieces/test" -s "$src" -t "$tgt" --decoded "$DISTILLED" \
        --output "$output/distilled"
else
    distil "$output/data" "$teacher" "$output/data/pieces/train" "$output/distilled"
fi

if [ -n "${VERIFIER:-}" ]; then
    verifier=$VERIFIER/verifier.pt
    cmp -s "$VERIFIER/dict.$src.txt" "$data/dict.$src.txt" || fail "The verifier in $VERIFIER has \
other subwords than $data. Give the teacher whose subwords it has."
else
    step "verifier: the teacher, trained on its own output"
    verifier=$output/verifier.pt
    train_on_distilled "$data" "$teacher" "$output/verifier" "${UPDATES_VERIFIER:-852}"
fi

pieces=$output/distilled/filtered/train
if [ -n "${DRAFTER_TEXT:-}" ] || [ "${DRAFTER_VARIANTS:-0}" != 0 ]; then
    step "source text for the drafter, without held-out lines"
    more=$output/more
    keep_output "$more/text.$src" unseen_text "$output/data/raw"
    varied=()
    if [ "${DRAFTER_VARIANTS:-0}" != 0 ]; then
        varied=("$more/varied.$src")
        [ -e "${varied[0]}" ] || "$python" "$root/data_scripts/vary_text.py" "$more/text.$src" \
            --copies "$DRAFTER_VARIANTS" --output "${varied[0]}"
    fi
    keep_output "$more/all.$src" cat "$more/text.$src" ${varied[@]+"${varied[@]}"}
    # Of a language with itself: a side is all that there is.
    "$python" "$root/data_scripts/prepare_subwords.py" -s "$src" -t "$src" --output "$more/data" \
        --train "$more/all" --subword-model "$output/data/spm.model" \
        --dictionary "$data/dict.$src.txt"
    pieces=$more/data/pieces/train
fi

step "the verifier's own greedy output, which the drafter learns to predict"
distil "$output/data" "$verifier" "$pieces" "$output/greedy" --beam 1

[ "${UNTIL:-}" != greedy ] || exit 0
step "drafter: two decoder layers and a chain head over the verifier's encoder"
drafter=$output/drafter.pt
updates=${UPDATES_DRAFTER:-7000}
[ -e "$drafter" ] || {
    train_our_drafter "$output/greedy/bin" "$verifier" "$output/drafter" \
        --lr-scheduler polynomial_decay --warmup-updates 200 \
        --total-num-update "$updates" --max-update "$updates" \
        ${DRAFTER_START:+--finetune-from-model "$DRAFTER_START"}
    keep_last "$output/drafter"
}

step "results on the test set"
specdec-bench "$data" -s "$src" -t "$tgt" --path "$verifier" --drafter-path "$drafter" \
    --draft-confidence 0.2 --drafter-dtype int8 \
    --methods "fairseq beam 5,fairseq beam 1,greedy,specdec self,specdec++ self,specdec,specdec++" \
    --reference "$output/data/raw/test.$tgt" --output "$output/results"
