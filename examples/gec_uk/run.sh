#!/usr/bin/env bash
# Correcting Ukrainian: noise pre-training, fine-tuning on UA-GEC, M2 scores, and speed by edit ratio.
# Every step is skipped when its output exists, and resumes when it was killed.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: run.sh UA_GEC TEXT OUTPUT

  UA_GEC   data/gec-only/train of UA-GEC, or a folder with train.src, train.tgt, dev.src and
           dev.tgt (plain or .gz)
  TEXT     files of clean Ukrainian text, a sentence a line, plain or .gz: A:B
  OUTPUT   where everything goes

Settings, as variables:
  PASSES=6           over the clean text, each with other errors
  ERROR_RATE=0.12 CLEAN_SHARE=0.25   errors for each word, and lines without, of made pairs
  UPDATES=6000       of pre-training
  UPDATES_REAL=2500  of training without pre-training
  UPDATES_TUNE=1500  of each stage of fine-tuning
  LR=1e-3 LR_TUNE=3e-4 DROPOUT_TUNE=0.2 SIZE=8000 DIM=256 LAYERS=3 MAX_TOKENS=4096
  BIASES="0 0.5 1 1.5"   values of --copy-bias, of which the validation part chooses one
  MAX_LENGTH=200     pieces of a corrected sentence
  SENTENCES=600      of the development part that the benchmark decodes; 0: no benchmark
  SAMPLES=1000       of the bootstrap
  THREADS=2 DEVICE=--cpu (empty for a GPU) WORKERS=1 PYTHON=python

example:
  examples/gec_uk/run.sh ua-gec/data/gec-only/train common-voice.uk.gz work
USAGE
}

. "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

[ "${1:-}" != --help ] || { usage; exit; }
[ $# = 3 ] || { usage; exit 1; }
corpus=$1 texts=$2 output=$3
passes=${PASSES:-6} updates=${UPDATES:-6000} samples=${SAMPLES:-1000} sentences=${SENTENCES:-600}
tune=${UPDATES_TUNE:-1500} threads=${THREADS:-2} device=${DEVICE---cpu} python=${PYTHON:-python}
read -r -a biases <<<"${BIASES:-0 0.5 1 1.5}"
[ -d "$corpus" ] || fail "$corpus is no folder. Give UA-GEC's."
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
plugin=$root/specdec_plugin gec=$root/data_scripts/gec
real=$output/real work=$output/noise models=$output/models
limit=(--max-len-b "${MAX_LENGTH:-200}")
command=$(command_line "examples/gec_uk/run.sh UA_GEC TEXT OUTPUT" PASSES ERROR_RATE CLEAN_SHARE \
    UPDATES UPDATES_REAL UPDATES_TUNE LR LR_TUNE DROPOUT_TUNE SIZE DIM LAYERS MAX_TOKENS BIASES \
    MAX_LENGTH SAMPLES THREADS)
export OMP_NUM_THREADS=$threads

# --- text and pairs ---------------------------------------------------------------------

clean_text() {  # the corrected side of the training part belongs to it
    {
        text_lines "$texts" | "$python" "$gec/tokenise.py" | sed 's/ [–-] / — /g; s/^[–-] /— /'
        cat "$real/train.cor"
    } | LC_ALL=C awk 'NF >= 3 && NF <= 60 && !seen[$0]++'
}

noise() {  # PASS: pairs of clean text
    "$python" "$gec/make_errors.py" "$work/text.uk" --language uk --output "$work/pass-$1" \
        --error-rate "${ERROR_RATE:-0.12}" --clean-share "${CLEAN_SHARE:-0.25}" \
        --vocabulary "$work/words.txt" --seed $((100 + $1)) --workers "${WORKERS:-1}"
}

prepare() {  # FOLDER OPTIONS: subwords and binary data
    [ -e "$1/bin/dict.cor.txt" ] || "$python" "$root/data_scripts/prepare_subwords.py" \
        -s err -t cor --output "$1" --workers "${WORKERS:-1}" "${@:2}"
}

# --- models -----------------------------------------------------------------------------

train() {  # NAME BINS START UPDATES LR DROPOUT
    [ ! -e "$models/$1.pt" ] || return 0
    local dim=${DIM:-256} layers=${LAYERS:-3}
    fairseq_train "$2" -s err -t cor --user-dir "$plugin" \
        --task specdec_translation ${device:+"$device" --cpu-autocast bfloat16} \
        ${3:+--finetune-from-model "$3"} \
        --arch transformer --share-all-embeddings --dropout "$6" \
        --encoder-layers "$layers" --encoder-embed-dim "$dim" --encoder-attention-heads 4 \
        --decoder-layers "$layers" --decoder-embed-dim "$dim" --decoder-attention-heads 4 \
        --encoder-ffn-embed-dim $((4 * dim)) --decoder-ffn-embed-dim $((4 * dim)) \
        --criterion projected_cross_entropy --label-smoothing 0.1 \
        --optimizer adam --adam-betas '(0.9, 0.98)' --lr "$5" --lr-scheduler inverse_sqrt \
        --warmup-updates 300 --max-update "$4" --max-tokens "${MAX_TOKENS:-4096}" \
        --save-interval-updates 200 --keep-interval-updates 4 --no-epoch-checkpoints \
        --ignore-unused-valid-subsets --log-format simple --log-interval 20 --num-workers 0 \
        --required-batch-size-multiple 1 --seed 1 --save-dir "$models/$1"
    average_checkpoints "$models/$1" "$models/$1.pt"
}

# --- scores -----------------------------------------------------------------------------

score() {  # PART HYPOTHESES MORE
    specdec-gec-score --source "$data/raw/$1.err" --hypothesis "$2.hyp" --m2 "$real/$1.m2" \
        --samples "$samples" --json "${@:3}"
}

f_score() {  # FILE: its F0.5
    "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["scores"]["M2 F0.5"]["score"])' "$1"
}

correct() {  # MODEL PART FILE FLAGS: drafts are taken from the source
    local subset=test
    [ "$2" = dev ] || subset=$2
    decode "$data/bin" "$1" "$3" -s err -t cor --gen-subset "$subset" --task specdec_translation \
        --beam 1 --decoding input-guided --fallback ngram "${limit[@]}" "${@:4}"
}

choose_bias() {  # MODEL: by F0.5 on the validation part, as ${bias}
    local each highest=-1 found
    for each in "${biases[@]}"; do
        correct "$1" valid "$output/valid/bias-$each" --copy-bias "$each"
        keep_output "$output/valid/bias-$each.json" score valid "$output/valid/bias-$each"
        found=$(f_score "$output/valid/bias-$each.json")
        echo "--copy-bias $each: F0.5 $found"
        if awk -v a="$found" -v b="$highest" 'BEGIN { exit !(a > b) }'; then
            highest=$found bias=$each
        fi
    done
}

# --- all steps --------------------------------------------------------------------------

mkdir -p "$real" "$work" "$models" "$output/dev"

step "real pairs: documents for training, validation and measuring apart"
[ -e "$real/train.cor" ] || "$python" "$gec/ua_gec.py" "$corpus" --output "$real"
[ -e "$real/valid.m2" ] ||
    "$python" "$gec/parallel_to_m2.py" "$real/valid" --output "$real/valid.m2"

step "pairs with made errors"
keep_output "$work/text.uk" clean_text
for ((pass = 1; pass <= passes; pass++)); do
    [ -e "$work/pass-$pass.err" ] || noise "$pass"
done

step "subwords and binary data"
prepare "$work/data" --train "$work/pass-1" --valid "$real/valid" --size "${SIZE:-8000}" \
    --character-coverage 1
same=(--subword-model "$work/data/spm.model" --dictionary "$work/data/bin/dict.err.txt")
bins=$work/data/bin
for ((pass = 2; pass <= passes; pass++)); do
    prepare "$work/data-$pass" --train "$work/pass-$pass" "${same[@]}"
    bins+=:$work/data-$pass/bin
done
data=$real/data
prepare "$data" --train "$real/train" --valid "$real/valid" --test "$real/dev" "${same[@]}"
prepare "$real/data-edited" --train "$real/edited" --valid "$real/valid" "${same[@]}"
for split in dev:test; do
    keep_output "$data/raw/${split%:*}.err" cat "$data/raw/${split#*:}.err"
done

dropout=${DROPOUT_TUNE:-0.2} lr=${LR:-1e-3} lr_tune=${LR_TUNE:-3e-4}
step "model: real pairs only, without pre-training"
train real "$data/bin" "" "${UPDATES_REAL:-2500}" "$lr" "$dropout"
step "model: made errors only"
train noise "$bins" "" "$updates" "$lr" 0
step "model: made errors, then all real pairs"
train tuned "$data/bin" "$models/noise.pt" "$tune" "$lr_tune" "$dropout"
step "model: made errors, then pairs with a correction, then all real pairs"
train edited "$real/data-edited/bin" "$models/noise.pt" "$tune" "$lr_tune" "$dropout"
train stages "$data/bin" "$models/edited.pt" "$tune" "$lr_tune" "$dropout"

step "scores of all on the development documents"
for name in real noise tuned stages; do
    correct "$models/$name.pt" dev "$output/dev/$name"
done
for name in noise tuned stages; do
    keep_output "$output/dev/$name.json" score dev "$output/dev/$name" \
        --baseline "$output/dev/real.hyp"
done
keep_output "$output/dev/real.json" score dev "$output/dev/real"

step "the model and --copy-bias that are best on the validation part"
for name in tuned stages; do
    correct "$models/$name.pt" valid "$output/valid/$name"
    keep_output "$output/valid/$name.json" score valid "$output/valid/$name"
done
best=tuned
if awk -v a="$(f_score "$output/valid/stages.json")" -v b="$(f_score "$output/valid/tuned.json")" \
    'BEGIN { exit !(a > b) }'; then
    best=stages
fi
choose_bias "$models/$best.pt"
correct "$models/$best.pt" dev "$output/dev/chosen" --copy-bias "$bias"
keep_output "$output/dev/chosen.json" score dev "$output/dev/chosen" \
    --baseline "$output/dev/real.hyp"

"$python" "$root/data_scripts/example_results.py" collect "$output/scores.json" \
    --command "$command" --setting "best=$best" --setting "copy bias=$bias" \
    --setting "updates=$updates" --setting "tuning updates=$tune" \
    "real pairs only=$output/dev/real.json" "made errors only=$output/dev/noise.json" \
    "made errors, real pairs=$output/dev/tuned.json" \
    "made errors, corrected pairs, real pairs=$output/dev/stages.json" \
    "the best with --copy-bias $bias=$output/dev/chosen.json"

step "the same output as fairseq's, one by one and 32 together"
for size in 1 32; do
    for name in fairseq-beam-1 input-guided input-guided-ngram; do
        decoding_flags "$name"
        decode "$data/bin" "$models/$best.pt" "$output/same/$name-$size" -s err -t cor \
            "${flags[@]}" "${limit[@]}" --batch-size "$size"
        echo "$name, batches of $size:" \
            "$(same_lines "$output/same/fairseq-beam-1-$size.hyp" "$output/same/$name-$size.hyp")" \
            "lines as fairseq's"
    done
done | tee "$output/same.txt"

[ "$sentences" != 0 ] || exit 0
step "speed by edit ratio"
[ -e "$output/bench/results.md" ] || specdec-bench "$data/bin" -s err -t cor \
    --path "$models/$best.pt" --reference "$data/raw/test.cor" --sentences "$sentences" \
    --threads "$threads" "${limit[@]}" --edit-ratio --fallback ngram --output "$output/bench" --resume \
    --methods "fairseq beam 5,fairseq beam 1,greedy,input-guided"
