#!/usr/bin/env bash
# From two photographs to a table and a picture: patches, a model, proposal heads, decoding.
# Every step is skipped when its output exists, and resumes when it was killed.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: run.sh OUTPUT [PHOTO...]

  OUTPUT   where everything goes
  PHOTO    pictures to cut patches out of (default: the two that scikit-learn brings along)

Settings, as variables:
  SIZES="2 4 8"      block sizes k, in rising order; heads of a frozen model are trained for
                     the last, and for a smaller k the first of them are used
  HEADS=source       form of the heads, as of --heads: joint, separate or source
  EPSILON=2          grey levels that an accepted one may be away
  UPDATES_MIXED=3000   of the model, on patches half of which have their blocks in random order
  UPDATES=2000         of the model, from there, on patches as they are
  UPDATES_HEADS=800    of each set of heads
  DIM=128 LAYERS=3   the model's size and depth
  SIDE=16 FACTOR=2 STRIDE=3   patches' side, how much they are enlarged, and their distance
  SENTENCES=64       test patches that are timed; 0: no benchmark
  COLOUR=            1: a pixel is three levels, red, green and blue
  THREADS=2 DEVICE=--cpu (empty for a GPU) PYTHON=python

examples:
  examples/superres/run.sh work
  COLOUR=1 SIDE=32 FACTOR=4 examples/superres/run.sh coloured   # as Stern et al. (2018)
USAGE
}

. "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

[ "${1:-}" != --help ] || { usage; exit; }
[ $# -ge 1 ] || { usage; exit 1; }
output=$1
shift
read -r -a sizes <<<"${SIZES:-2 4 8}"
heads=${HEADS:-source} epsilon=${EPSILON:-2} updates_heads=${UPDATES_HEADS:-800}
updates_mixed=${UPDATES_MIXED:-3000} updates=${UPDATES:-2000}
dim=${DIM:-128} layers=${LAYERS:-3} side=${SIDE:-16} factor=${FACTOR:-2} colour=${COLOUR:-}
threads=${THREADS:-2} device=${DEVICE---cpu} python=${PYTHON:-python} sentences=${SENTENCES:-64}
[ ${#sizes[@]} -gt 0 ] || fail "SIZES names no block size. Give some, such as 8."
largest=${sizes[${#sizes[@]} - 1]} levels=$((side * side ${colour:+* 3}))
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
plugin=$root/specdec_plugin programs=$root/data_scripts/superres
patches=$output/patches data=$output/bin mixed=$output/bin-mixed base=$output/base.pt
export OMP_NUM_THREADS=$threads
mkdir -p "$output/results"
origin=(--command "$(command_line "examples/superres/run.sh OUTPUT${1:+ PHOTO...}" SIZES HEADS EPSILON \
    UPDATES_MIXED UPDATES UPDATES_HEADS DIM LAYERS SIDE FACTOR STRIDE COLOUR SENTENCES)"
    --setting "ε=$epsilon" --setting "seed=1")

# Files appear under their names when they are whole.

train() {  # FOLDER DATA OPTIONS: what it leaves is FOLDER.pt
    [ ! -e "$1.pt" ] || return 0
    fairseq_train "$2" -s low -t high --user-dir "$plugin" \
        ${device:+"$device" --cpu-autocast bfloat16} \
        --optimizer adam --adam-betas '(0.9, 0.98)' --lr-scheduler polynomial_decay \
        --max-tokens 8192 --save-interval-updates 200 --keep-interval-updates 1 \
        --no-epoch-checkpoints --log-format simple --log-interval 20 --num-workers 0 --seed 1 \
        --disable-validation --save-dir "$1" "${@:3}"
    keep_last "$1"
}

train_model() {  # FOLDER DATA UPDATES OPTIONS
    train "$1" "$2" --task specdec_translation --arch transformer --share-all-embeddings --dropout 0 \
        --encoder-layers "$layers" --encoder-embed-dim "$dim" --encoder-attention-heads 4 \
        --decoder-layers "$layers" --decoder-embed-dim "$dim" --decoder-attention-heads 4 \
        --encoder-ffn-embed-dim $((4 * dim)) --decoder-ffn-embed-dim $((4 * dim)) \
        --encoder-learned-pos --decoder-learned-pos --no-scale-embedding \
        --max-source-positions "$levels" --max-target-positions $((2 * levels)) \
        --criterion cross_entropy --warmup-updates $(($3 / 8)) \
        --total-num-update "$3" --max-update "$3" "${@:4}"
}

train_heads() {  # FOLDER K OPTIONS
    train "$1" "$data" --task blockwise_translation --arch blockwise_transformer --verifier-path "$base" \
        --block-size "$2" --heads "$heads" --dropout 0 --criterion blockwise_cross_entropy \
        --label-smoothing 0 --head-loss mean --warmup-updates $((updates_heads / 8)) \
        --total-num-update "$updates_heads" --max-update "$updates_heads" "${@:3}"
}

decode() {  # NAME MODEL FLAGS: the held-out patches, a line for every line
    local name=$output/$1
    [ ! -e "$name.hyp" ] || return 0
    # All patches are equally long, so that no end of sentence need be predicted.
    fairseq-generate "$data" -s low -t high --user-dir "$plugin" --task specdec_translation \
        --path "$2" --beam 1 --batch-size 32 --required-batch-size-multiple 1 \
        --min-len "$levels" --max-len-a 0 --max-len-b "$levels" ${device:+"$device"} "${@:3}" \
        >"$name.log" 2>&1 || fail "fairseq-generate failed. See $name.log, mend it, and run this again."
    hypotheses "$name"
}

# --- data and models --------------------------------------------------------------------

step "patches"
[ -e "$patches/dict.txt" ] || "$python" "$programs/photo_patches.py" --output "$patches" \
    --side "$side" --factor "$factor" --stride "${STRIDE:-3}" ${colour:+--colour} \
    ${1:+--photos "$@"}

binary() {  # FOLDER OPTIONS
    [ ! -e "$1/dict.high.txt" ] || return 0
    rm -rf "$1.tmp"
    fairseq-preprocess -s low -t high --srcdict "$patches/dict.txt" --tgtdict "$patches/dict.txt" \
        --destdir "$1.tmp" --workers 1 "${@:2}"
    mv "$1.tmp" "$1"
}

step "binary data"
binary "$data" --trainpref "$patches/train" --validpref "$patches/valid" --testpref "$patches/test"
binary "$mixed" --trainpref "$patches/mixed"

# In a photograph the pixels before tell nearly all, and a model is slow to find out that the
# source tells more. With blocks in random order only the source tells anything.
step "model: $layers+$layers layers, d=$dim, learns where to look"
train_model "$output/mixed" "$mixed" "$updates_mixed" --lr 2e-3
step "model: learns photographs"
train_model "${base%.pt}" "$data" "$updates" --lr 1e-3 \
    --finetune-from-model "$output/mixed/checkpoint_last.pt"

step "heads for the model as it is, k=$largest"
train_heads "$output/frozen" "$largest" --frozen-base --lr 1e-3
for k in "${sizes[@]}"; do
    step "heads and model together, k=$k"
    # Beside heads that predict nothing yet, the model would forget what it knows.
    train_heads "$output/tuned$k" "$k" --heads-path "$output/frozen.pt" --lr 3e-4
done

# --- decoding ---------------------------------------------------------------------------

step "held-out regions"
drafts=(--decoding blockwise --draft-rows 0)  # in every batch, whatever it costs
near=(--acceptance distance --epsilon "$epsilon")
cell() {  # LABELS NAME MODEL FLAGS
    decode "${@:2}"
    cells+=("$1|$output/$2")
}

cells=()
cell "k=1;setting=regular" greedy "$base" --decoding greedy
for k in "${sizes[@]}"; do
    frozen=("${drafts[@]}" --drafter-path "$output/frozen.pt" --block-size "$k")
    cell "k=$k;setting=regular" "regular$k" "$base" "${frozen[@]}"
    cell "k=$k;setting=approximate" "approximate$k" "$base" "${frozen[@]}" "${near[@]}"
    cell "k=$k;setting=fine-tuned" "tuned$k.exact" "$output/tuned$k.pt" "${drafts[@]}"
    cell "k=$k;setting=both" "tuned$k.near" "$output/tuned$k.pt" "${drafts[@]}" "${near[@]}"
    cell "k=$k;setting=fine-tuned, greedy" "tuned$k.greedy" "$output/tuned$k.pt" --decoding greedy
done
"$python" "$programs/collect_cells.py" "$output/results/quality.json" "${origin[@]}" \
    --truth "$patches/test.high" --low "$patches/test.low" "${cells[@]}"
"$python" "$programs/draw_patches.py" --output "$output/grid.png" \
    "small=$patches/test.low" "greedy=$output/greedy.hyp" \
    "k=$largest, ε=$epsilon=$output/tuned$largest.near.hyp" "truth=$patches/test.high"

step "the same output as fairseq's"
for k in "${sizes[@]}"; do
    keep_output "$output/check$k.txt" specdec-check "$data" -s low -t high \
        --path "$output/tuned$k.pt" --methods greedy,blockwise --batch-size 32 \
        --max-len-b "$levels" --output "$output/check$k"
    printf 'k = %s\n\n' "$k"
    cat "$output/check$k.txt"
done >"$output/results/same.txt"

[ "$sentences" != 0 ] || exit 0
step "time"
runs=()
for k in "${sizes[@]}"; do
    [ -e "$output/bench$k/results.md" ] || specdec-bench "$data" -s low -t high \
        --path "$output/tuned$k.pt" --methods "fairseq beam 1,greedy,blockwise" "${near[@]}" \
        --max-len-b "$levels" --sentences "$sentences" --repeats 3 --threads "$threads" \
        --output "$output/bench$k" --resume
    runs+=("$output/bench$k|k=$k")
done
"$python" "$root/data_scripts/collect_runs.py" "$output/results/speed.json" "${origin[@]}" "${runs[@]}"
