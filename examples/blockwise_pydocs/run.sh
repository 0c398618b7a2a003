#!/usr/bin/env bash
# From raw text to a table and a curve: models, proposal heads for several k, decoding, time.
# Every step is skipped when its output exists, and resumes when it was killed.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: run.sh CORPUS OUTPUT [TEACHER]

  CORPUS   folder with train, dev and test .en and .es (plain or .gz)
  OUTPUT   where everything goes; may be that of translation_pydocs/run.sh
  TEACHER  folder of an existing teacher (teacher.pt, spm.model, dict.en.txt):
           its subwords are used and no teacher is trained

Settings, as variables:
  SIZES="2 4 8"       block sizes k, in rising order; heads of a frozen model are trained for
                      the last, and for a smaller k the first of them are used
  HEADS=source        form of the heads, as of --heads: joint, separate or source
  UPDATES=900         of each cell of the table
  UPDATES_LONG=2000   more, of the last k, fine-tuned on distilled data until it learns no more;
                      0: leave that out
  MORE=PREFIX         source text without translations (PREFIX.en, plain or .gz), which the
                      verifier translates for these updates
  SENTENCES=400       of the test set, for the time; 0: no benchmark
  SRC=en TGT=es THREADS=2 DEVICE=--cpu (empty for a GPU) PYTHON=python
  and those of translation_pydocs/run.sh, for teacher, distillation and verifier

example:
  examples/blockwise_pydocs/run.sh corpora/pydocs/en-es work
USAGE
}

. "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

[ "${1:-}" != --help ] || { usage; exit; }
[ $# -ge 2 ] || { usage; exit 1; }
corpus=$1 output=$2 given=${3:-}
src=${SRC:-en} tgt=${TGT:-es}
read -r -a sizes <<<"${SIZES:-2 4 8}"
heads=${HEADS:-source} updates=${UPDATES:-900} updates_long=${UPDATES_LONG:-2000} sentences=${SENTENCES:-400}
more=${MORE:-} threads=${THREADS:-2} device=${DEVICE---cpu} python=${PYTHON:-python}
[ ${#sizes[@]} -gt 0 ] || fail "SIZES names no block size. Give some, such as 8."
largest=${sizes[${#sizes[@]} - 1]}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
plugin=$root/specdec_plugin
export OMP_NUM_THREADS=$threads

# Files appear under their names when they are whole.

train() {  # FOLDER DATA BASE K UPDATES OPTIONS: what it leaves is FOLDER.pt
    [ ! -e "$1.pt" ] || return 0
    fairseq_train "$2" -s "$src" -t "$tgt" --user-dir "$plugin" \
        --task blockwise_translation --arch blockwise_transformer --verifier-path "$3" \
        --block-size "$4" --heads "$heads" ${device:+"$device" --cpu-autocast bfloat16} \
        --criterion blockwise_cross_entropy --head-loss mean --dropout 0.1 \
        --optimizer adam --adam-betas '(0.9, 0.98)' \
        --lr-scheduler polynomial_decay --warmup-updates $(($5 / 8)) \
        --total-num-update "$5" --max-update "$5" --max-tokens 4096 \
        --save-interval-updates 200 --keep-interval-updates 1 --no-epoch-checkpoints \
        --log-format simple --log-interval 20 --num-workers 0 --seed 1 --save-dir "$1" "${@:6}"
    keep_last "$1"
}

# FOLDER DATA BASE
frozen() { train "$1" "$2" "$3" "$largest" "$updates" --frozen-base --lr 2e-3 --disable-validation; }

# Beside heads that predict nothing yet, the model would forget what it knows.
tuned() {  # FOLDER DATA BASE K UPDATES HEADS OPTIONS
    train "$1" "$2" "$3" "$4" "$5" --heads-path "$6" --lr 3e-4 "${@:7}"
}

# The verifier's output for more source text, beside that for the corpus.
translate_more() {
    wide=$work/wide
    [ ! -e "$wide/dict.$tgt.txt" ] || return 0
    # Of a language with itself: a side is all that there is.
    "$python" "$root/data_scripts/prepare_subwords.py" -s "$src" -t "$src" --train "$more" \
        --output "$output/more/data" --subword-model "$output/data/spm.model" \
        --dictionary "$distilled/dict.$src.txt"
    PYTHON=$python "$root/data_scripts/distill.sh" -d "$distilled" -p "$verifier" \
        -x "$output/more/data/pieces/train" -s "$src" -t "$tgt" -o "$output/more" \
        -n "${SHARDS:-8}" -j "${JOBS:-1}" -- --beam 1 ${device:+"$device"}
    rm -rf "$wide.tmp"
    cp -r "$distilled" "$wide.tmp"
    for file in "$output/more/bin/train.$src-$tgt".*; do  # fairseq trains on train and train1
        cp "$file" "$wide.tmp/train1${file##*/train}"
    done
    mv "$wide.tmp" "$wide"
}

decode() {  # NAME MODEL FLAGS: the development set, a line for every line
    local name=$cells/$1
    [ ! -e "$name.hyp" ] || return 0
    fairseq-generate "$distilled" -s "$src" -t "$tgt" --user-dir "$plugin" --gen-subset valid \
        --task specdec_translation --path "$2" --beam 1 --batch-size 32 \
        --required-batch-size-multiple 1 --post-process sentencepiece ${device:+"$device"} \
        "${@:3}" >"$name.log" 2>&1
    hypotheses "$name"
}

cell() {  # NAME: BLEU / accepted tokens an iteration
    local bleu accepted
    bleu=$(sacrebleu "$output/data/raw/valid.$tgt" -i "$cells/$1.hyp" -b -w 2)
    accepted=$(sed -n 's/.*iterations: \([0-9.]*\) accepted tokens.*/\1/p' "$cells/$1.log")
    echo "$bleu / $accepted"
}

# --- models -----------------------------------------------------------------------------

UNTIL=greedy "$root/examples/translation_pydocs/run.sh" "$@"
plain=$output/data/bin distilled=$output/greedy/bin
teacher=${given:-$output}/teacher.pt verifier=$output/verifier.pt
work=$output/blockwise cells=$output/blockwise/cells
mkdir -p "$cells"

step "regular: heads for the teacher as it is"
frozen "$work/regular" "$plain" "$teacher"
step "distilled: heads for the verifier as it is, and its greedy output"
frozen "$work/distilled" "$distilled" "$verifier"
for k in "${sizes[@]}"; do
    step "fine-tuned: heads and teacher, k=$k"
    tuned "$work/tuned$k" "$plain" "$teacher" "$k" "$updates" "$work/regular.pt" \
        --disable-validation
    step "both: heads and verifier, k=$k"
    tuned "$work/both$k" "$distilled" "$verifier" "$k" "$updates" "$work/distilled.pt" \
        --disable-validation
done
best=$work/both$largest.pt
if [ "$updates_long" != 0 ]; then
    step "both, k=$largest, until it learns no more"
    wide=$distilled
    [ -z "$more" ] || [ -e "$work/long.pt" ] || translate_more
    tuned "$work/long" "$wide" "$best" "$largest" "$updates_long" "$best" \
        --lr 4e-4 --head-decay 0.8 --upsample-primary 1  # train and train1 count alike
    best=$work/long.pt
fi

# --- the table --------------------------------------------------------------------------

step "development set"
drafts=(--decoding blockwise --draft-rows 0)  # in every batch, whatever it costs
decode regular1 "$teacher" --decoding greedy
decode distilled1 "$verifier" --decoding greedy
for k in "${sizes[@]}"; do
    for name in regular distilled; do
        model=$teacher
        [ $name = regular ] || model=$verifier
        decode "$name$k" "$model" "${drafts[@]}" --drafter-path "$work/$name.pt" --block-size "$k"
    done
    for name in tuned both; do
        decode "$name$k" "$work/$name$k.pt" "${drafts[@]}"
    done
    decode "top2-$k" "$work/both$k.pt" "${drafts[@]}" --acceptance top-k --top-beta 2
    decode "top3-$k" "$work/both$k.pt" "${drafts[@]}" --acceptance top-k --top-beta 3
    decode "least2-$k" "$work/both$k.pt" "${drafts[@]}" --min-block 2
done
columns=(regular distilled tuned both top2- top3- least2-)
{
    echo "| k | regular | distilled | fine-tuned | both | both, top-2 | both, top-3 | both, ℓ = 2 |"
    echo "|---|---|---|---|---|---|---|---|"
    echo "| 1 | $(cell regular1) | $(cell distilled1) | | | | | |"
    for k in "${sizes[@]}"; do
        printf '| %s |' "$k"
        for name in "${columns[@]}"; do printf ' %s |' "$(cell "$name$k")"; done
        echo
    done
    if [ "$updates_long" != 0 ]; then
        decode long "$best" "${drafts[@]}"
        echo "| $largest, $updates_long updates | | | | $(cell long) | | | |"
    fi
} >"$work/table.tmp"
mv "$work/table.tmp" "$work/table.md"
echo "BLEU / accepted tokens an iteration"
cat "$work/table.md"

# --- time -------------------------------------------------------------------------------

[ "$sentences" != 0 ] || exit 0
step "time, on the test set"
bench() {  # FOLDER MODEL OPTIONS
    [ ! -e "$1/results.md" ] || return 0
    specdec-bench "$distilled" -s "$src" -t "$tgt" --path "$2" \
        --methods "fairseq beam 5,fairseq beam 1,greedy,greedy certified,blockwise,blockwise certified" \
        --approximate-scores --reference "$output/data/raw/test.$tgt" --sentences "$sentences" \
        --repeats 3 --threads "$threads" --output "$1" --resume "${@:3}"
}
runs=()
for k in "${sizes[@]}"; do
    bench "$work/bench$k" "$work/both$k.pt"
    runs+=("$work/bench$k")
done
bench "$work/bench-frozen" "$verifier" --heads-path "$work/distilled.pt" --block-size 4
bench "$work/bench-best" "$best"
"$python" "$root/data_scripts/plot_speedups.py" --output "$work/curve.png" \
    --series translation "${runs[@]}"
