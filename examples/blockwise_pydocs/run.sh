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
# The frozen model is timed with four heads, if there are so many.
frozen_size=$((largest < 4 ? largest : 4))
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

# A row of the table: the development set, whatever the drafts cost.
cell() {  # LABELS METHOD NAME MODEL OPTIONS
    [ -e "$cells/$3/results.md" ] || specdec-bench "$distilled" -s "$src" -t "$tgt" --path "$4" \
        --gen-subset valid --reference "$output/data/raw/valid.$tgt" --methods "greedy,blockwise" \
        --draft-rows 0 --batch-size 32 --threads "$threads" --output "$cells/$3" --resume "${@:5}"
    rows+=("$cells/$3|$1|$2")
}

# --- models -----------------------------------------------------------------------------

UNTIL=greedy "$root/examples/translation_pydocs/run.sh" "$@"
plain=$output/data/bin distilled=$output/greedy/bin
teacher=${given:-$output}/teacher.pt verifier=${VERIFIER:-$output}/verifier.pt
work=$output/blockwise cells=$output/blockwise/cells
mkdir -p "$cells" "$output/results"
collect() {  # FILE RUNS
    "$python" "$root/data_scripts/collect_runs.py" "$output/results/$1.json" \
        --command "$(command_line "examples/blockwise_pydocs/run.sh CORPUS OUTPUT${given:+ TEACHER}" \
            SRC TGT SIZES HEADS UPDATES UPDATES_LONG MORE SENTENCES VERIFIER DISTILLED SIZE LAYERS \
            DIM UPDATES_TEACHER UPDATES_VERIFIER)" \
        --setting "seed=1" --setting "updates=$updates" "${@:2}"
}

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
rows=()
for k in "${sizes[@]}"; do
    for setting in regular distilled; do
        model=$teacher
        [ $setting = regular ] || model=$verifier
        heads_of=(--heads-path "$work/$setting.pt" --block-size "$k")
        [ "$k" != "${sizes[0]}" ] || cell "k=1;setting=$setting" greedy "$setting$k" "$model" "${heads_of[@]}"
        cell "k=$k;setting=$setting" blockwise "$setting$k" "$model" "${heads_of[@]}"
    done
    cell "k=$k;setting=fine-tuned" blockwise "tuned$k" "$work/tuned$k.pt"
    both=$work/both$k.pt
    cell "k=$k;setting=both" blockwise "both$k" "$both"
    for beta in 2 3; do
        cell "k=$k;setting=both, top-$beta" blockwise "top$beta-$k" "$both" \
            --acceptance top-k --top-beta $beta
    done
    cell "k=$k;setting=both, ℓ = 2" blockwise "least2-$k" "$both" --min-block 2
done
[ "$updates_long" = 0 ] || cell "k=$largest;setting=both, longer" blockwise "long$largest" "$best"
collect quality "${rows[@]}"

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
runs=() rows=()
for k in "${sizes[@]}"; do
    bench "$work/bench$k" "$work/both$k.pt"
    runs+=("$work/bench$k")
    rows+=("$work/bench$k|model=both, k = $k")
done
frozen=$work/bench-frozen$frozen_size
bench "$frozen" "$verifier" --heads-path "$work/distilled.pt" --block-size "$frozen_size"
rows=("$frozen|model=distilled, k = $frozen_size" "${rows[@]}")
if [ "$updates_long" != 0 ]; then
    bench "$work/bench-long$largest" "$best"
    rows+=("$work/bench-long$largest|model=both, longer, k = $largest")
fi
collect speed "${rows[@]}"
"$python" "$root/data_scripts/plot_speedups.py" --output "$work/curve.png" \
    --series translation "${runs[@]}"
