#!/usr/bin/env bash
# Summarising abstracts by BART's route: denoising, fine-tuning, ROUGE beside the first sentence.
# Every step is skipped when its output exists, and resumes when it was killed.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: run.sh TRAIN DEV TEXT OUTPUT

  TRAIN    path of SciTLDR's training part without its ending .jsonl (plain or .gz)
  DEV      the same of the part that is decoded and scored
  TEXT     files of English text, plain or .gz: A:B; the articles of TRAIN are added
  OUTPUT   where everything goes

Settings, as variables:
  START=                     folder of a Transformer of the same DIM and LAYERS that restores
                             English, such as checkpoints/gec-en: denoising begins with it
  UPDATES=8000 LR=1e-3       of denoising
  UPDATES_TUNE=1500 LR_TUNE=3e-4   of fine-tuning, with denoising before and without
  SIZE=8000 DIM=256 LAYERS=3 POSITIONS=1024 MAX_TOKENS=4096   subwords, model, batches
  MAX_LENGTH=60              pieces of a summary
  DECODINGS="fairseq-beam-1 greedy specdec input-guided beam-5 fairseq-beam-5"
  SENTENCES=200              that the benchmark decodes; 0: no benchmark
  SAMPLES=1000               of the bootstrap
  THREADS=2 DEVICE=--cpu (empty for a GPU) WORKERS=1 PYTHON=python

example:
  examples/summarization/run.sh SciTLDR-A/train SciTLDR-A/dev wikitext.en.gz work
USAGE
}

. "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

[ "${1:-}" != --help ] || { usage; exit; }
[ $# = 4 ] || { usage; exit 1; }
train=$1 dev=$2 texts=$3 output=$4
start=${START:-} updates=${UPDATES:-8000} tune=${UPDATES_TUNE:-1500} samples=${SAMPLES:-1000}
threads=${THREADS:-2} device=${DEVICE---cpu} python=${PYTHON:-python}
read -r -a decodings <<<"${DECODINGS:-fairseq-beam-1 greedy specdec input-guided beam-5 fairseq-beam-5}"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
plugin=$root/specdec_plugin scripts=$root/data_scripts/summarization
src=src tgt=tgt pairs=$output/pairs text=$output/text scored=$output/scores
command=$(command_line "examples/summarization/run.sh TRAIN DEV TEXT OUTPUT" START UPDATES LR UPDATES_TUNE \
    DECODINGS LR_TUNE SIZE DIM LAYERS POSITIONS MAX_TOKENS MAX_LENGTH SAMPLES THREADS)
export OMP_NUM_THREADS=$threads
POSITIONS=${POSITIONS:-1024}
bart_shape
[ -z "$start" ] || [ -e "$start/model.pt" ] || fail "$start holds no model.pt. Check the folder."
"$python" -c 'import rouge_score' 2>/dev/null ||
    fail "ROUGE needs the package rouge-score. Install it: pip install '.[rouge]'."

clean_text() {
    {
        text_lines "$texts"
        cat "$pairs/train.src"
    } | LC_ALL=C awk 'NF >= 3 && !seen[$0]++'
}

prepare() {  # FOLDER OPTIONS: subwords and binary data
    [ -e "$1/bin/dict.tgt.txt" ] || "$python" "$root/data_scripts/prepare_subwords.py" \
        -s src -t tgt --output "$1" --workers "${WORKERS:-1}" "${@:2}"
}

summarise() {  # MODEL FILE DECODING
    decoding_flags "$3"
    decode "$data/bin" "$output/$1.pt" "$2" -s src -t tgt --truncate-source \
        --max-source-positions "$POSITIONS" --max-len-b "${MAX_LENGTH:-60}" "${flags[@]}"
}

# The subwords of START and a mask, as ${same[@]}; START with these embeddings, as ${begin}.
from_start() {
    local dictionaries=("$start"/dict.*.txt)
    local own=${dictionaries[0]} masked=$output/dict.txt
    begin=$output/start.pt
    cp "$own" "$masked"
    grep -q "^<mask> " "$masked" || echo "<mask> 0" >>"$masked"
    same=(--subword-model "$start/spm.model" --dictionary "$masked")
    [ -e "$begin" ] || "$python" "$root/data_scripts/change_subwords.py" "$start/model.pt" \
        --subword-model "$start/spm.model" --dictionary "$own" --new-dictionary "$masked" \
        --output "$begin"
    small_shape "${LAYERS:-3}" "${LAYERS:-3}"
    shape=(--arch transformer "${small[@]}"
        --max-source-positions "$POSITIONS" --max-target-positions "$POSITIONS")
}

rouge() {  # HYPOTHESES MORE
    "$python" "$scripts/score_summaries.py" "$1.hyp" --references "$pairs/test.jsonl" \
        --samples "$samples" --json "${@:2}"
}

step "pairs"
[ -e "$pairs/train.tgt" ] || "$python" "$scripts/summary_pairs.py" "$train" "$dev" --output "$pairs"

step "text, subwords and binary data"
keep_output "$text/train.src" clean_text
keep_output "$text/train.tgt" cat "$text/train.src"
for side in src tgt; do
    keep_output "$text/valid.$side" cat "$pairs/valid.src"
done
begin="" same=(--size "${SIZE:-8000}" --character-coverage 1)
[ -z "$start" ] || from_start
prepare "$output/denoising" --train "$text/train" --valid "$text/valid" "${same[@]}"
data=$output/pairs-data
prepare "$data" --train "$pairs/train" --valid "$pairs/valid" --test "$pairs/test" \
    --subword-model "${start:-$output/denoising}/spm.model" \
    --dictionary "$output/denoising/bin/dict.src.txt"

step "model: denoising"
denoise "$output/denoising/bin" "$output/denoised" "$updates" "${LR:-1e-3}" "$begin"
step "model: fine-tuned"
tune_bart "$data/bin" "$output/tuned" "$output/denoised.pt" "$tune" "${LR_TUNE:-3e-4}"
step "model: the same without denoising before"
tune_bart "$data/bin" "$output/untaught" "" "$tune" "${LR_TUNE:-3e-4}"

step "summaries and their scores"
mkdir -p "$scored"
cp "$pairs/test.lead" "$scored/lead.hyp"
keep_output "$scored/lead.json" rouge "$scored/lead"
summarise untaught "$scored/untaught" beam-5
keep_output "$scored/untaught.json" rouge "$scored/untaught"
rows=("first sentence=$scored/lead.json" "without denoising, beam 5=$scored/untaught.json")
for decoding in "${decodings[@]}"; do
    summarise tuned "$scored/$decoding" "$decoding"
    keep_output "$scored/$decoding.json" rouge "$scored/$decoding" \
        --baseline "$scored/untaught.hyp"
    rows+=("fine-tuned, $decoding=$scored/$decoding.json")
done
"$python" "$root/data_scripts/example_results.py" collect "$output/scores.json" \
    --command "$command" \
    ${start:+--setting "start=$(basename "$start")"} --setting "updates=$updates" --setting "tuning updates=$tune" "${rows[@]}"

step "the same output as fairseq's"
for decoding in "${decodings[@]}"; do
    theirs=fairseq-beam-1
    case $decoding in *beam-*) theirs=fairseq-beam-${decoding##*-} ;; esac
    [ ! -e "$scored/$theirs.hyp" ] || echo "$decoding:" \
        "$(same_lines "$scored/$theirs.hyp" "$scored/$decoding.hyp") lines as $theirs"
done | tee "$output/same.txt"

[ "${SENTENCES:-200}" != 0 ] || exit 0
step "speed"
cut=$output/cut  # specdec-bench takes sources as they are
mkdir -p "$cut"
[ -e "$cut/bin/dict.tgt.txt" ] || {
    cut -d ' ' -f "1-$((POSITIONS - 1))" "$data/pieces/test.src" >"$cut/test.src"
    cp "$data/pieces/test.tgt" "$cut/test.tgt"
    binarise_test "$data/bin" "$cut"
}
[ -e "$output/bench/results.md" ] || specdec-bench "$cut/bin" -s src -t tgt \
    --path "$output/tuned.pt" --sentences "${SENTENCES:-200}" --threads "$threads" \
    --max-len-b "${MAX_LENGTH:-60}" --output "$output/bench" --resume \
    --methods "fairseq beam 5,fairseq beam 1,greedy,specdec self,input-guided,beam"
