#!/usr/bin/env bash
# Drafters and proposal heads for a multilingual model and for an mBART: trained, compared, timed.
# Every step is skipped when its output exists, and resumes when it was killed.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: run.sh CORPUS OUTPUT

  CORPUS   folder with en-es, en-fr, ...; in each train, dev and test .en and .es, ...
           (plain or .gz)
  OUTPUT   where everything goes; may be that of vocab_clusters/run.sh

Settings, as variables:
  MINUTES=2           that a drafter or heads are trained
  LANGUAGE=es         what the mBART translates into, and whose test set is decoded
  UPDATES_MBART=3000 LR_MBART=1e-3 SIZE_MBART=8000   of the mBART, and its subwords
  SENTENCES=200       that are timed
  MAX_LEN=200         the most tokens of an output
  THREADS=2 DEVICE=--cpu (empty for a GPU) PYTHON=python
  and those of vocab_clusters/run.sh, for the multilingual model

example:
  START=checkpoints/pydocs-en-es UPDATES=2000 LR=1e-3 examples/other_tasks/run.sh corpora/pydocs work
USAGE
}

. "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

[ "${1:-}" != --help ] || { usage; exit; }
[ $# -ge 2 ] || { usage; exit 1; }
corpus=$1 output=$2
language=${LANGUAGE:-es} max_len=${MAX_LEN:-200} sentences=${SENTENCES:-200} updates=${UPDATES_MBART:-3000}
threads=${THREADS:-2} device=${DEVICE---cpu} python=${PYTHON:-python}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
plugin=$root/specdec_plugin
export OMP_NUM_THREADS=$threads
hours=$("$python" -c 'import sys; print(float(sys.argv[1]) / 60)' "${MINUTES:-2}")
small_training
training=(--lr-scheduler inverse_sqrt --stop-time-hours "$hours" --disable-validation)

# The decoding flags of a method that drafts with what was trained, as ${flags[@]}.
draft_flags() {  # METHOD
    flags=(--decoding "$1" --draft-rows 0)
    case $1 in
        specdec) flags+=(--drafter-path "$folder/drafter.pt") ;;
        blockwise) flags+=(--drafter-path "$folder/heads.pt") ;;
    esac
}

by_lines() {  # METHOD: the test set's pieces through fairseq-interactive
    draft_flags "$1"
    fairseq-interactive "$bin" --user-dir "$plugin" -s "$src" -t "$tgt" "${task[@]}" --beam 1 \
        --path "$model" --buffer-size 64 --post-process sentencepiece --max-len-b "$max_len" \
        ${device:+"$device"} "${flags[@]}" <"$pieces"
}

# A drafter and heads for $model, of the task that $kind and ${of_task[@]} tell, and what they do.
draft_for() {  # NAME
    folder=$output/drafts/$1
    local task=(--task "specdec_translation$kind" ${of_task[@]+"${of_task[@]}"}) method each
    mkdir -p "$folder"
    step "$1: a drafter in ${MINUTES:-2} minutes"
    [ -e "$folder/drafter.pt" ] || {
        train_our_drafter "$bin" "$model" "$folder/drafter" --warmup-updates 200 "${training[@]}"
        keep_last "$folder/drafter"
    }
    step "$1: proposal heads in ${MINUTES:-2} minutes"
    [ -e "$folder/heads.pt" ] || {
        fairseq_train "$bin" -s "$src" -t "$tgt" --task "blockwise_translation$kind" \
            ${of_task[@]+"${of_task[@]}"} "${small_training[@]}" --seed 1 --verifier-path "$model" \
            --arch blockwise_transformer --frozen-base --heads source --block-size 4 --dropout 0 \
            --criterion blockwise_cross_entropy --head-loss mean --lr 2e-3 --warmup-updates 50 \
            --max-tokens 4096 --save-dir "$folder/heads" "${training[@]}"
        keep_last "$folder/heads"
    }
    step "$1: the output stays as it is"
    local greedy=(-s "$src" -t "$tgt" "${task[@]}" --beam 1 --max-len-b "$max_len")
    decode "$test" "$model" "$folder/fairseq" "${greedy[@]}"
    for method in specdec blockwise; do
        draft_flags "$method"
        decode "$test" "$model" "$folder/$method" "${greedy[@]}" "${flags[@]}"
        [ -e "$folder/$method-lines.hyp" ] || {
            by_lines "$method" >"$folder/$method-lines.log"
            hypotheses "$folder/$method-lines"
        }
        for each in "$method" "$method-lines"; do
            echo "$1, $each: $(same_lines "$folder/fairseq.hyp" "$folder/$each.hyp") lines as fairseq's"
        done
    done | tee "$folder/same.txt"
    step "$1: table"
    [ -e "$folder/bench/results.md" ] || specdec-bench "$test" -s "$src" -t "$tgt" "${task[@]}" \
        --path "$model" --drafter-path "$folder/drafter.pt" --heads-path "$folder/heads.pt" \
        --methods "fairseq beam 5,fairseq beam 1,greedy,specdec self,specdec,blockwise,auto" \
        --max-len-b "$max_len" --reference "$reference" --sentences "$sentences" --threads "$threads" \
        --output "$folder/bench" --resume
    step "$1: a page to step through the iterations"
    specdec-ddgviz "$test" -s "$src" -t "$tgt" "${task[@]}" --path "$model" --decoding specdec \
        --max-len-b "$max_len" --drafter-path "$folder/drafter.pt" --ids 3,7,12 \
        --output "$folder/ddgviz"
}

UNTIL=model SRC=en "$root/examples/vocab_clusters/run.sh" "$corpus" "$output"
src=src tgt=tgt
model=$output/model.pt bin=$output/data/all/bin test=$output/data/$language/bin
pieces=$output/data/$language/pieces/test.src reference=$output/data/$language/raw/test.tgt
draft_for multilingual

src=en tgt=$language kind=_from_pretrained_bart of_task=(--langs "en,$language")
step "mBART: data and model"
data=$output/mbart-data
"$python" "$root/data_scripts/prepare_subwords.py" -s en -t "$language" --output "$data" \
    --size "${SIZE_MBART:-8000}" --train "$corpus/en-$language/train" \
    --valid "$corpus/en-$language/dev" --test "$corpus/en-$language/test"
model=$output/mbart.pt bin=$data/bin test=$data/bin
pieces=$data/pieces/test.en reference=$data/raw/test.$language
[ -e "$model" ] || {
    POSITIONS=1024 bart_shape
    fairseq_train "$bin" -s en -t "$language" --task specdec_translation_from_pretrained_bart \
        "${of_task[@]}" "${shape[@]}" --arch mbart_base --layernorm-embedding \
        "${small_training[@]}" --seed 1 --dropout 0.1 --max-valid-steps 10 \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 4096 \
        --lr "${LR_MBART:-1e-3}" --lr-scheduler inverse_sqrt --warmup-updates 400 \
        --max-update "$updates" --save-dir "$output/mbart"
    average_checkpoints "$output/mbart" "$model" 3
}
draft_for mbart
