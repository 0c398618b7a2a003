#!/usr/bin/env bash
# Simplifying sentences: denoising pre-training, tuning with controls, SARI beside two baselines.
# Every step is skipped when its output exists, and resumes when it was killed.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: run.sh CORPORA TEXT OUTPUT

  CORPORA  folder with NAME.orig and NAME.simp.0, NAME.simp.1 ... (plain or .gz) of each corpus
  TEXT     files of English text, a sentence a line, plain or .gz: A:B
  OUTPUT   where everything goes

Settings, as variables:
  NAMES="asset.valid turk.tune"   the corpora; the controls are chosen on the first
  START=                     folder of a Transformer that restores English, such as
                             checkpoints/gec-en: it is tuned, and no model is denoised
  UPDATES=8000 LR=1e-3       of denoising
  UPDATES_TUNE=3000 LR_TUNE=3e-4   of tuning
  LENGTHS="6 8 9" SIMILARITIES="5 6 8"   controls, in tenths, of which the validation part
                             chooses a pair
  SIZE=8000 DIM=256 LAYERS=3 POSITIONS=512 MAX_TOKENS=4096   subwords, model, batches
  MAX_LENGTH=200             pieces of a simplified sentence
  SENTENCES=300              that the benchmark decodes; 0: no benchmark
  SAMPLES=1000               of the bootstrap
  THREADS=2 DEVICE=--cpu (empty for a GPU) WORKERS=1 PYTHON=python

example:
  examples/simplification/run.sh corpora wikitext.en.gz:common-voice.en.gz work
USAGE
}

. "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

[ "${1:-}" != --help ] || { usage; exit; }
[ $# = 3 ] || { usage; exit 1; }
corpora=$1 texts=$2 output=$3
read -r -a names <<<"${NAMES:-asset.valid turk.tune}"
read -r -a lengths <<<"${LENGTHS:-6 8 9}"
read -r -a similarities <<<"${SIMILARITIES:-5 6 8}"
start=${START:-} updates=${UPDATES:-8000} tune=${UPDATES_TUNE:-3000} samples=${SAMPLES:-1000}
threads=${THREADS:-2} device=${DEVICE---cpu} python=${PYTHON:-python}
[ -d "$corpora" ] || fail "$corpora is no folder. Give that of the corpora."
[ -z "$start" ] || [ -e "$start/model.pt" ] || fail "$start holds no model.pt. Check the folder."
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
plugin=$root/specdec_plugin scripts=$root/data_scripts/simplification
pairs=$output/pairs text=$output/text
limit=(--max-len-b "${MAX_LENGTH:-200}")
command=$(command_line "examples/simplification/run.sh CORPORA TEXT OUTPUT" NAMES START UPDATES LR \
    UPDATES_TUNE LR_TUNE LENGTHS SIMILARITIES SIZE DIM LAYERS POSITIONS MAX_TOKENS MAX_LENGTH \
    SAMPLES THREADS)
export OMP_NUM_THREADS=$threads
bart_shape

# --- text -------------------------------------------------------------------------------

clean_text() {  # in lower case, as TurkCorpus is; the sources of the training part belong to it
    {
        text_lines "$texts" | "$python" "$root/data_scripts/gec/tokenise.py" | tr '[:upper:]' '[:lower:]'
        sed 's/ len[0-9]* sim[0-9]*$//' "$pairs/train.src"
    } | LC_ALL=C awk 'NF >= 3 && NF <= 100 && !seen[$0]++'
}

prepare() {  # FOLDER OPTIONS: subwords and binary data
    [ -e "$1/bin/dict.tgt.txt" ] || "$python" "$root/data_scripts/prepare_subwords.py" \
        -s src -t tgt --output "$1" --workers "${WORKERS:-1}" "${@:2}"
}

# --- decoding and scores ----------------------------------------------------------------

with_controls() {  # PART LENGTH SIMILARITY: binary data with these controls, as ${data}
    data=$output/controlled/$1-len$2-sim$3
    keep_output "$data/test.src" sed "s/\$/ len$2 sim$3/" "$pairs/$1.orig"
    keep_output "$data/test.tgt" cat "$pairs/$1.ref0"
    prepare "$data" --test "$data/test" "${same[@]}"
}

simplify() {  # PART LENGTH SIMILARITY NAME
    with_controls "$1" "$2" "$3"
    decoding_flags "$4"
    decode "$data/bin" "$output/tuned.pt" "$data/$4" -s src -t tgt "${limit[@]}" "${flags[@]}"
}

sari() {  # PART HYPOTHESES MORE: as EASSE has it, on text that is tokenised already
    specdec-gec-score --source "$pairs/$1.orig" --hypothesis "$2" --metrics sari \
        --sari-deletion f1 --references "$pairs/$1".ref* --samples "$samples" --json "${@:3}"
}

score_of() {  # FILE
    "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["scores"]["SARI"]["score"])' "$1"
}

choose_controls() {  # by SARI on the validation part, as ${length} and ${similarity}
    local best=-1 found each other
    for each in "${lengths[@]}"; do
        for other in "${similarities[@]}"; do
            simplify "valid.${names[0]}" "$each" "$other" input-guided-ngram
            keep_output "$data/sari.json" sari "valid.${names[0]}" "$data/input-guided-ngram.hyp"
            found=$(score_of "$data/sari.json")
            echo "len$each sim$other: $found"
            if awk -v a="$found" -v b="$best" 'BEGIN { exit !(a > b) }'; then
                best=$found length=$each similarity=$other
            fi
        done
    done
}

# --- all steps --------------------------------------------------------------------------

step "pairs, and parts that are held apart"
[ -e "$pairs/train.tgt" ] || "$python" "$scripts/simplification_pairs.py" "$corpora" \
    "${names[@]}" --output "$pairs"

step "text, subwords and binary data"
keep_output "$text/train.src" clean_text
keep_output "$text/train.tgt" cat "$text/train.src"
for side in src tgt; do
    keep_output "$text/valid.$side" cat "$pairs/valid.tgt"
done
if [ -n "$start" ]; then
    dictionaries=("$start"/dict.*.txt)
    same=(--subword-model "$start/spm.model" --dictionary "${dictionaries[0]}")
    begin=$start/model.pt layers=${LAYERS:-3}
    small_shape "$layers" "$layers"
    shape=(--arch transformer "${small[@]}") origin=(--setting "start=$(basename "$start")")
else
    prepare "$output/denoising" --train "$text/train" --valid "$text/valid" \
        --size "${SIZE:-8000}" --character-coverage 1
    same=(--subword-model "$output/denoising/spm.model"
        --dictionary "$output/denoising/bin/dict.src.txt")
    begin=$output/denoised.pt origin=(--setting "updates=$updates")
    step "model: denoising"
    denoise "$output/denoising/bin" "$output/denoised" "$updates" "${LR:-1e-3}"
fi
prepare "$output/pairs-data" --train "$pairs/train" --valid "$pairs/valid" "${same[@]}"

step "model: tuning"
tune_bart "$output/pairs-data/bin" "$output/tuned" "$begin" "$tune" "${LR_TUNE:-3e-4}"

step "controls, chosen on the validation part"
choose_controls
echo "chosen: len$length sim$similarity"

step "scores on the parts that nothing was tuned on"
rows=()
for name in "${names[@]}"; do
    part=test.$name scored=$output/scores/$name
    mkdir -p "$scored"
    cp "$pairs/$part.orig" "$scored/source.hyp"
    for drop in last rarest; do
        more=()
        [ "$drop" = last ] || more=(--text "$text/train.src")
        [ -e "$scored/$drop.hyp" ] || "$python" "$scripts/shorten.py" "$pairs/$part.orig" \
            --drop "$drop" "${more[@]}" --output "$scored/$drop.hyp"
    done
    for decoding in fairseq-beam-1 input-guided input-guided-ngram fairseq-beam-5; do
        simplify "$part" "$length" "$similarity" "$decoding"
        cp "$data/$decoding.hyp" "$scored/$decoding.hyp"
    done
    for system in source last rarest; do
        keep_output "$scored/$system.json" sari "$part" "$scored/$system.hyp"
    done
    better=last
    if awk -v a="$(score_of "$scored/rarest.json")" -v b="$(score_of "$scored/last.json")" \
        'BEGIN { exit !(a > b) }'; then
        better=rarest
    fi
    keep_output "$scored/input-guided.json" sari "$part" "$scored/input-guided.hyp" \
        --baseline "$scored/$better.hyp"
    keep_output "$scored/beside-source.json" sari "$part" "$scored/input-guided.hyp" \
        --baseline "$scored/source.hyp"
    keep_output "$scored/fairseq-beam-5.json" sari "$part" "$scored/fairseq-beam-5.hyp"
    rows+=("$name, source=$scored/source.json"
        "$name, last fifth of the words dropped=$scored/last.json"
        "$name, rarest words dropped=$scored/rarest.json"
        "$name, model, gain over $better=$scored/input-guided.json"
        "$name, model, gain over the source=$scored/beside-source.json"
        "$name, model, beam 5=$scored/fairseq-beam-5.json")
done
"$python" "$root/data_scripts/example_results.py" collect "$output/scores.json" \
    --command "$command" \
    --setting "controls=len$length sim$similarity" "${origin[@]}" \
    --setting "tuning updates=$tune" "${rows[@]}"

step "the same output as fairseq's, one by one and 32 together"
with_controls "test.${names[0]}" "$length" "$similarity"
for size in 1 32; do
    for decoding in fairseq-beam-1 input-guided input-guided-ngram; do
        decoding_flags "$decoding"
        decode "$data/bin" "$output/tuned.pt" "$output/same/$decoding-$size" -s src -t tgt \
            "${flags[@]}" "${limit[@]}" --batch-size "$size"
        echo "$decoding, batches of $size:" \
            "$(same_lines "$output/same/fairseq-beam-1-$size.hyp" "$output/same/$decoding-$size.hyp")" \
            "lines as fairseq's"
    done
done | tee "$output/same.txt"

[ "${SENTENCES:-300}" != 0 ] || exit 0
step "speed by edit ratio"
[ -e "$output/bench/results.md" ] || specdec-bench "$data/bin" -s src -t tgt \
    --path "$output/tuned.pt" --reference "$data/raw/test.tgt" --sentences "${SENTENCES:-300}" \
    --threads "$threads" "${limit[@]}" --edit-ratio --fallback ngram --output "$output/bench" --resume \
    --methods "fairseq beam 5,fairseq beam 1,greedy,input-guided"
