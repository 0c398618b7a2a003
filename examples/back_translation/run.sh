#!/usr/bin/env bash
# Back-translation: synthetic source text, sampled from target text by a reverse model.
# Every step is skipped when its output exists, and resumes when it was killed.
set -euo pipefail

usage() {
    cat <<'END'
usage: run.sh CORPUS TEXT OUTPUT [REVERSE]

Makes source text for text in the target language, with a model that translates
from target to source, and leaves pairs to train a model from source to target on.

  CORPUS   folder with train and dev .en and .es (plain or .gz)
  TEXT     prefix of text in the target language (TEXT.es, plain or .gz)
  OUTPUT   where everything goes
  REVERSE  folder of an existing model (reverse.pt, spm.model, dict.es.txt):
           its subwords are used, and none is trained

Settings, as variables: SRC=en TGT=es (of the pairs; the reverse model reads TGT),
TOPK=0 (draw from so many symbols; 0: from all), SEED=1, DECODING=greedy (a method of
--decoding), UPDATES=3122 of the reverse model, SHARDS=8, JOBS=1, SENTENCES=200 (of which
the speed is measured; 0: not at all), THREADS=2, DEVICE (--cpu by default; empty for a
GPU), PYTHON=python. LAUNCHER=submitit PARTITION=cpu MINUTES=240 runs the shards in Slurm,
LAUNCHER=local as jobs of this machine; JOBS is then how many at a time.

example:
  examples/back_translation/run.sh corpora/pydocs/en-es corpora/news work
END
}

. "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

[ "${1:-}" != --help ] || { usage; exit; }
[ $# -ge 3 ] || { usage; exit 1; }
corpus=$1 text=$2 output=$3 given=${4:-}
src=${SRC:-en} tgt=${TGT:-es} seed=${SEED:-1} decoding=${DECODING:-greedy}
topk=${TOPK:-0} sentences=${SENTENCES:-200} threads=${THREADS:-2} device=${DEVICE---cpu}
python=${PYTHON:-python}
case $topk$seed$sentences in *[!0-9]*) fail "TOPK, SEED and SENTENCES take whole numbers." ;; esac
[ -e "$text.$tgt" ] || [ -e "$text.$tgt.gz" ] || fail "$text.$tgt was not found. Check the path."
reverse=${given:-$output}/reverse.pt
[ -z "$given" ] || [ -e "$reverse" ] ||
    fail "$reverse was not found. Name the folder of a reverse model."
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
plugin=$root/specdec_plugin
export OMP_NUM_THREADS=$threads
mkdir -p "$output"

sampling=(--sampling)
[ "$topk" = 0 ] || sampling+=(--sampling-topk "$topk")

prepare() { "$python" "$root/data_scripts/prepare_subwords.py" "$@"; }

step "pairs: subwords and binary data"
reuse=(--size 8000)
[ -z "$given" ] || reuse=(--subword-model "$given/spm.model" --dictionary "$given/dict.$tgt.txt")
prepare -s "$tgt" -t "$src" --output "$output/data" --train "$corpus/train" \
    --valid "$corpus/dev" "${reuse[@]}"
bin=$output/data/bin subwords=$output/data/spm.model

if [ ! -e "$reverse" ]; then
    step "reverse model, $tgt to $src"
    # Without label smoothing, which would have samples draw any symbol now and then.
    fairseq_train "$bin" -s "$tgt" -t "$src" --user-dir "$plugin" --task specdec_translation \
        --arch transformer --share-all-embeddings \
        --encoder-layers 3 --encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 \
        --encoder-attention-heads 4 --decoder-layers 3 --decoder-embed-dim 256 \
        --decoder-ffn-embed-dim 1024 --decoder-attention-heads 4 --dropout 0.1 \
        --criterion cross_entropy \
        --optimizer adam --adam-betas '(0.9, 0.98)' --lr 2e-3 --lr-scheduler inverse_sqrt \
        --warmup-updates 800 --max-tokens 4096 --max-update "${UPDATES:-3122}" --seed "$seed" \
        --num-workers 0 --save-interval-updates 200 --keep-interval-updates 3 \
        --no-epoch-checkpoints --log-format simple --log-interval 20 \
        ${device:+$device --cpu-autocast bfloat16} --save-dir "$output/reverse"
    specdec-average-checkpoints --inputs "$output/reverse" --num-update-checkpoints 3 \
        --output "$reverse" --half
fi

step "text in $tgt: subwords"
# Of a language with itself: a side is all that there is.
prepare -s "$tgt" -t "$tgt" --output "$output/text" --train "$text" \
    --subword-model "$subwords" --dictionary "$bin/dict.$tgt.txt"

step "synthetic text in $src: a sample for each line"
synthetic=$output/synthetic
if [ ! -e "$synthetic/bin/dict.$src.txt" ]; then
    PYTHON=$python "$root/data_scripts/distill.sh" -d "$bin" -p "$reverse" \
        -x "$output/text/pieces/train" -s "$tgt" -t "$src" -o "$synthetic" \
        -n "${SHARDS:-8}" ${JOBS:+-j "$JOBS"} ${LAUNCHER:+--launcher "$LAUNCHER"} \
        ${PARTITION:+--partition "$PARTITION"} ${MINUTES:+--minutes "$MINUTES"} \
        -- --decoding "$decoding" "${sampling[@]}" --seed "$seed" ${device:+$device}
fi

step "pairs, $src to $tgt: those of the corpus as train, synthetic ones as train1"
if [ ! -e "$output/bin" ]; then
    rm -rf "$output/bin.tmp"
    cp -r "$bin" "$output/bin.tmp"  # fairseq reads it in both directions
    for file in "$synthetic/bin/train.$tgt-$src".*; do
        cp "$file" "$output/bin.tmp/train1${file##*/train}"
    done
    mv "$output/bin.tmp" "$output/bin"
fi
echo "$output/bin is ready for fairseq-train; $synthetic/filtered/train.$src is synthetic."

[ "$sentences" != 0 ] || exit 0
step "speed: tokens a second beside fairseq's own sampling"
for size in 1 32; do
    specdec-bench "$synthetic/bin" -s "$tgt" -t "$src" --path "$reverse" --gen-subset train \
        --methods "fairseq beam 1,greedy,specdec self" "${sampling[@]}" --seed "$seed" --max-len-b 300 \
        --batch-size "$size" --sentences "$sentences" --threads "$threads" \
        --output "$output/speed$size" --resume
done
