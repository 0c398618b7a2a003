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
PYTHON=python, UNTIL=greedy to stop before the drafter.

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

step "subwords and binary data"
reuse=()
if [ -n "$given" ]; then
    reuse=(--subword-model "$given/spm.model" --dictionary "$given/dict.$src.txt")
fi
"$python" "$root/data_scripts/prepare_subwords.py" -s "$src" -t "$tgt" --size 8000 \
    --output "$output/data" --train "$corpus/train" --valid "$corpus/dev" --test "$corpus/test" \
    ${reuse[@]+"${reuse[@]}"}

# The small shape: 3+3 layers, d=256, all embeddings shared, sinusoidal positions.
shape=(--share-all-embeddings
    --encoder-layers 3 --encoder-embed-dim 256 --encoder-ffn-embed-dim 1024
    --encoder-attention-heads 4 --decoder-embed-dim 256 --decoder-ffn-embed-dim 1024
    --decoder-attention-heads 4)
training=(--user-dir "$plugin" --optimizer adam --adam-betas '(0.9, 0.98)' --seed 1
    --num-workers 0 --save-interval-updates 200 --keep-interval-updates 10
    --no-epoch-checkpoints --log-format simple --log-interval 20 ${device:+$device})
[ -z "$device" ] || training+=(--cpu-autocast bfloat16)

if [ -n "$given" ]; then
    teacher=$given/teacher.pt
else
    step "teacher"
    teacher=$output/teacher.pt
    [ -e "$teacher" ] || {
        fairseq_train "$output/data/bin" --task specdec_translation --arch transformer \
            "${shape[@]}" --decoder-layers 3 "${training[@]}" --dropout 0.1 \
            --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
            --lr 2e-3 --lr-scheduler inverse_sqrt --warmup-updates 800 --max-tokens 4096 \
            --max-update "${UPDATES_TEACHER:-3122}" --save-dir "$output/teacher"
        specdec-average-checkpoints --inputs "$output/teacher" --num-update-checkpoints 3 \
            --output "$teacher" --half
    }
fi

step "distilled data (Seq-KD)"
if [ ! -e "$output/distilled/bin/dict.$tgt.txt" ]; then
    PYTHON=$python "$root/data_scripts/distill.sh" -d "$output/data/bin" -p "$teacher" \
        -x "$output/data/pieces/train" -v "$output/data/pieces/valid" \
        -e "$output/data/pieces/test" -s "$src" -t "$tgt" -o "$output/distilled" \
        -n "${SHARDS:-8}" -j "${JOBS:-1}" -- ${device:+$device}
fi
data=$output/distilled/bin

step "verifier: the teacher, trained on its own output"
verifier=$output/verifier.pt
updates=${UPDATES_VERIFIER:-852}
[ -e "$verifier" ] || {
    fairseq_train "$data" --task specdec_translation --arch transformer \
        "${shape[@]}" --decoder-layers 3 "${training[@]}" --dropout 0.1 \
        --finetune-from-model "$teacher" \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
        --lr 7e-4 --lr-scheduler polynomial_decay --warmup-updates 100 \
        --total-num-update "$updates" --max-update "$updates" --max-tokens 4096 \
        --save-dir "$output/verifier"
    specdec-average-checkpoints --inputs "$output/verifier/checkpoint_last.pt" \
        --output "$verifier" --half
}

step "the verifier's own greedy output, which the drafter learns to predict"
if [ ! -e "$output/greedy/bin/dict.$tgt.txt" ]; then
    PYTHON=$python "$root/data_scripts/distill.sh" -d "$data" -p "$verifier" \
        -x "$output/distilled/filtered/train" -v "$output/data/pieces/valid" \
        -e "$output/data/pieces/test" -s "$src" -t "$tgt" -o "$output/greedy" \
        -n "${SHARDS:-8}" -j "${JOBS:-1}" -- --beam 1 ${device:+$device}
fi

[ "${UNTIL:-}" != greedy ] || exit 0
step "drafter: two decoder layers and a chain head over the verifier's encoder"
drafter=$output/drafter.pt
updates=${UPDATES_DRAFTER:-7000}
[ -e "$drafter" ] || {
    specdec-init-drafter "$data" -s "$src" -t "$tgt" --verifier "$verifier" \
        --output "$output/drafter.init.pt" --decoder-layers 2 --block-size 10 \
        --prefix-attention causal --share-encoder --chain-units 512
    fairseq_train "$output/greedy/bin" --task block_nat_translation --arch block_nat \
        "${shape[@]}" --decoder-layers 2 --block-size 10 --prefix-attention causal \
        --share-encoder --chain-units 512 --verifier-path "$verifier" \
        --teacher-path "$verifier" --teacher-weight 0.5 \
        --finetune-from-model "$output/drafter.init.pt" "${training[@]}" --dropout 0 \
        --criterion glancing_block_loss --block-rate 0.25 --position-decay 0.8 \
        --glancing-start 0 --glancing-end 0 \
        --best-checkpoint-metric accepted --maximize-best-checkpoint-metric \
        --lr 1e-3 --lr-scheduler polynomial_decay --warmup-updates 200 \
        --total-num-update "$updates" --max-update "$updates" --max-tokens 2048 \
        --save-dir "$output/drafter"
    specdec-average-checkpoints --inputs "$output/drafter/checkpoint_last.pt" \
        --output "$drafter" --half
}

step "results on the test set"
specdec-bench "$data" -s "$src" -t "$tgt" --path "$verifier" --drafter-path "$drafter" \
    --draft-confidence 0.2 --drafter-dtype int8 \
    --methods "fairseq beam 5,fairseq beam 1,greedy,specdec self,specdec++ self,specdec,specdec++" \
    --reference "$output/data/raw/test.$tgt" --output "$output/results"
