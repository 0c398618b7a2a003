#!/usr/bin/env bash
# A multilingual model of base size: the small one of vocab_clusters, grown, and trained on.
# Every step is skipped when its output exists, and resumes when it was killed.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: run.sh CORPUS OUTPUT

  CORPUS   folder with en-es, en-fr, ...; in each train, dev and test .en and .es, ...
           (plain or .gz)
  OUTPUT   where everything goes; may be that of vocab_clusters/run.sh

Settings, as variables:
  WIDTH=2 LAYERS=6    times the small model's width (256), and layers of encoder and decoder
  UPDATES_BASE=3000 LR_BASE=5e-4   of its training, whose rate falls to 0
  DROPOUT_BASE=0      that is right for fewer updates than an epoch has
  UPDATES_DRAFTER=1500
  LANGUAGE=es         whose test set is measured
  SENTENCES=200 BATCHES=1,8,32   that are timed, and how many at once
  MAX_LEN=200         the most tokens of an output
  PROCESSES=1         that train together, each with THREADS threads and batches of its own
  THREADS=2 DEVICE=--cpu (empty for a GPU) PYTHON=python
  and those of vocab_clusters/run.sh, for data and the small model

example:
  START=checkpoints/pydocs-en-es UPDATES=2000 LR=1e-3 examples/base_model/run.sh corpora/pydocs work
USAGE
}

. "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

[ "${1:-}" != --help ] || { usage; exit; }
[ $# -ge 2 ] || { usage; exit 1; }
corpus=$1 output=$2
width=${WIDTH:-2} layers=${LAYERS:-6} updates=${UPDATES_BASE:-3000}
language=${LANGUAGE:-es} sentences=${SENTENCES:-200} batches=${BATCHES:-1,8,32}
threads=${THREADS:-2} device=${DEVICE---cpu} python=${PYTHON:-python}
src=src tgt=tgt
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
plugin=$root/specdec_plugin
base=$output/base.pt drafter=$output/base-drafter.pt
export OMP_NUM_THREADS=$threads

UNTIL=model SRC=en "$root/examples/vocab_clusters/run.sh" "$corpus" "$output"
bin=$output/data/all/bin

small_shape "$layers" "$layers" $((256 * width))
small_training
small+=(--encoder-attention-heads $((4 * width)) --decoder-attention-heads $((4 * width))
    --encoder-learned-pos --decoder-learned-pos)

step "model: $layers+$layers layers, d=$((256 * width)), grown from the small one"
[ -e "$output/base.start.pt" ] || "$python" "$root/data_scripts/grow_model.py" "$output/model.pt" \
    --width "$width" --layers "$layers" --noise 0.02 --output "$output/base.start.pt"
[ -e "$base" ] || {
    fairseq_train "$bin" -s src -t tgt --task specdec_translation --arch transformer \
        "${small[@]}" "${small_training[@]}" --seed 1 --dropout "${DROPOUT_BASE:-0}" \
        --keep-interval-updates 3 \
        --finetune-from-model "$output/base.start.pt" \
        --criterion projected_cross_entropy --label-smoothing 0.1 \
        --lr "${LR_BASE:-5e-4}" --lr-scheduler polynomial_decay --total-num-update "$updates" \
        --warmup-updates $((updates / 8 < 200 ? updates / 8 : 200)) --max-update "$updates" \
        --max-tokens 4096 --max-valid-steps 10 --save-dir "$output/base"
    keep_last "$output/base"
}

step "drafter: two decoder layers and a chain head over the model's encoder"
steps=${UPDATES_DRAFTER:-1500}
[ -e "$drafter" ] || {
    train_our_drafter "$bin" "$base" "$output/base-drafter" --max-valid-steps 10 \
        --lr-scheduler polynomial_decay --warmup-updates 200 \
        --total-num-update "$steps" --max-update "$steps"
    keep_last "$output/base-drafter"
}

step "results on the test set of en-$language"
# Another program that is timed beside ours, where it is installed.
peers=()
! "$python" -c 'import ctranslate2' 2>/dev/null || peers=(--peer ctranslate2)
[ -e "$output/bench/base/results.md" ] || specdec-bench "$output/data/$language/bin" \
    -s src -t tgt --path "$base" --drafter-path "$drafter" --threads "$threads" \
    --reference "$output/data/$language/raw/test.tgt" --sentences "$sentences" \
    --max-len-b "${MAX_LEN:-200}" --sweep batch --batch-sizes "$batches" ${peers[@]+"${peers[@]}"} --resume \
    --methods "fairseq beam 5,fairseq beam 1,greedy,specdec self,specdec,auto,beam" \
    --output "$output/bench/base"
