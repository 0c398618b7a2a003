#!/usr/bin/env bash
# From raw text in several directions to tables and plots: one multilingual model, clusters of
# its states for each direction, quality, time and memory with and without them.
# Every step is skipped when its output exists, and resumes when it was killed.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: run.sh CORPUS OUTPUT

  CORPUS   folder with en-es, en-fr, ...; in each train, dev and test .en and .es, ...
           (plain or .gz)
  OUTPUT   where everything goes

Settings, as variables:
  SRC=en TARGETS="es fr pt zh ja"
  SIZE=32000          subwords, joint over all languages
  UPDATES=6400 LR=2e-3   of training (four passes); the last three checkpoints are averaged
  START=              folder of a model (verifier.pt, spm.model, dict.en.txt) whose weights training
                      begins with, such as checkpoints/pydocs-en-es; empty: random ones
  UNTIL=model         to stop before the clusters
  CLUSTERS=500 TOP_K=5 NEIGHBOURS=64   of each direction
  DRAFT_TOP_K=1 DRAFT_NEIGHBOURS=16    of those for drafts, which may miss a token now and then
  STATES=1000000      that are recorded of each, at most
  FEW=28000 MORE_STATES=300000   a direction with fewer training sentences gets so many states of
                      what the model makes of the other directions' sentences
  GRID="125 250 500 1000" GRID_K="1 3 5" GRID_NEIGHBOURS="1 32"   what is tried with the first
                      direction's development set; GRID="" leaves that out
  SENTENCES=400       of each set that the methods are timed with; decoded are all
  THREADS=2 DEVICE=--cpu (empty for a GPU) PYTHON=python

example:
  examples/vocab_clusters/run.sh corpora/pydocs work
USAGE
}

. "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

[ "${1:-}" != --help ] || { usage; exit; }
[ $# -ge 2 ] || { usage; exit 1; }
corpus=$1 output=$2
read -r -a targets <<<"${TARGETS:-es fr pt zh ja}"
[ ${#targets[@]} -gt 0 ] || fail "TARGETS names no language. Give some, such as \"es fr\"."
src=${SRC:-en} size=${SIZE:-32000} updates=${UPDATES:-6400} start=${START:-}
clusters=${CLUSTERS:-500} top_k=${TOP_K:-5} neighbours=${NEIGHBOURS:-64}
draft_k=${DRAFT_TOP_K:-1} draft_m=${DRAFT_NEIGHBOURS:-16}
states=${STATES:-1000000} few=${FEW:-28000} more_states=${MORE_STATES:-300000} sentences=${SENTENCES:-400}
read -r -a grid <<<"${GRID-125 250 500 1000}" || true
read -r -a grid_k <<<"${GRID_K-1 3 5}" || true
read -r -a grid_m <<<"${GRID_NEIGHBOURS-1 32}" || true
threads=${THREADS:-2} device=${DEVICE---cpu} python=${PYTHON:-python}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
plugin=$root/specdec_plugin
text=$output/text data=$output/data model=$output/model.pt
export OMP_NUM_THREADS=$threads
origin=(--command "$(command_line "examples/vocab_clusters/run.sh CORPUS OUTPUT" TARGETS SIZE UPDATES LR \
    START CLUSTERS TOP_K NEIGHBOURS DRAFT_TOP_K DRAFT_NEIGHBOURS STATES FEW MORE_STATES GRID GRID_K \
    GRID_NEIGHBOURS SENTENCES)" --setting "seed=1")

# --- data -------------------------------------------------------------------------------

step "one corpus of all directions"
[ -e "$text/all/test.tgt" ] || "$python" "$root/data_scripts/join_directions.py" "$corpus" \
    --source "$src" --targets "${targets[@]}" --output "$text"

step "joint subwords and binary data"
"$python" "$root/data_scripts/prepare_subwords.py" -s src -t tgt --size "$size" \
    --character-coverage 0.9998 --output "$data/all" \
    --train "$text/all/train" --valid "$text/all/dev"
for target in "${targets[@]}"; do
    "$python" "$root/data_scripts/prepare_subwords.py" -s src -t tgt --output "$data/$target" \
        --train "$text/$target/train" --valid "$text/$target/dev" --test "$text/$target/test" \
        --subword-model "$data/all/spm.model" --dictionary "$data/all/bin/dict.src.txt"
done

# --- model ------------------------------------------------------------------------------

step "model: 3+3 layers, d=256, for all directions"
[ -e "$model" ] || {
    begin=()
    if [ -n "$start" ]; then
        begin=(--finetune-from-model "$output/start.pt")
        [ -e "$output/start.pt" ] || "$python" "$root/data_scripts/change_subwords.py" \
            "$start/verifier.pt" --subword-model "$start/spm.model" \
            --dictionary "$start/dict.$src.txt" --new-dictionary "$data/all/bin/dict.src.txt" \
            --output "$output/start.pt"
    fi
    # Logits of all tokens at once would fill gigabytes, and take most of the time.
    fairseq_train "$data/all/bin" -s src -t tgt --user-dir "$plugin" --task specdec_translation \
        --arch transformer --share-all-embeddings --dropout 0.1 \
        --encoder-layers 3 --encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 \
        --encoder-attention-heads 4 --decoder-layers 3 --decoder-embed-dim 256 \
        --decoder-ffn-embed-dim 1024 --decoder-attention-heads 4 \
        --criterion projected_cross_entropy --label-smoothing 0.1 \
        --optimizer adam --adam-betas '(0.9, 0.98)' --lr "${LR:-2e-3}" --lr-scheduler inverse_sqrt \
        --warmup-updates $((updates / 8 < 800 ? updates / 8 : 800)) --max-update "$updates" \
        --max-tokens 4096 ${device:+"$device" --cpu-autocast bfloat16} \
        --save-interval-updates $((updates / 30 + 1)) --keep-interval-updates 3 --no-epoch-checkpoints \
        --max-valid-steps 10 \
        --log-format simple --log-interval 50 --num-workers 0 --seed 1 --save-dir "$output/model" \
        ${begin[@]+"${begin[@]}"}
    specdec-average-checkpoints --inputs "$output/model" --num-update-checkpoints 3 \
        --output "$model" --half
}

[ "${UNTIL:-}" != model ] || exit 0

# --- clusters ---------------------------------------------------------------------------

cluster() {  # LANGUAGE FILE N K NEIGHBOURS
    [ ! -e "$2" ] || return 0
    local more=()
    [ ! -e "$output/states/$1.more/progress.json" ] || more=(--more-states "$output/states/$1.more")
    specdec-cluster-vocab "$data/$1/bin" -s src -t tgt --user-dir "$plugin" --path "$model" \
        --gen-subset train ${device:+"$device"} --states "$states" \
        --states-dir "$output/states/$1" ${more[@]+"${more[@]}"} \
        --clusters "$3" --top-k "$4" --neighbours "$5" --output "$2"
}

# A token that followed no recorded state is active nowhere, and translations of few sentences leave
# out many: clusters need no references, so the model translates more.
translate_others() {  # LANGUAGE; the states alone are used, not this one cluster of them
    local pieces=$data/$1/pieces/others.src
    [ -e "$pieces" ] || {
        "$python" -c "$encode" "$data/all/spm.model" <"$text/$1/others.src" >"$pieces.tmp"
        mv "$pieces.tmp" "$pieces"
    }
    specdec-cluster-vocab "$data/$1/bin" -s src -t tgt --user-dir "$plugin" --path "$model" \
        --input "$pieces" ${device:+"$device"} --states "$more_states" \
        --states-dir "$output/states/$1.more" --clusters 1 --output "$output/states/$1.more.pt"
}
encode='import sys, sentencepiece
model = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
for line in sys.stdin:
    print(*model.encode(line.strip(), out_type=str))'

mkdir -p "$output/clusters" "$output/states"
for target in "${targets[@]}" all; do
    step "clusters of $src-$target"
    if [ "$(wc -l <"$text/$target/train.src")" -lt "$few" ] && [ -s "$text/$target/others.src" ]; then
        [ -e "$output/states/$target.more.pt" ] || translate_others "$target"
    fi
    cluster "$target" "$output/clusters/$target.pt" "$clusters" "$top_k" "$neighbours"
    [ "$target" = all ] ||
        cluster "$target" "$output/clusters/$target.drafts.pt" "$clusters" "$draft_k" "$draft_m"
done

# --- tables -----------------------------------------------------------------------------

tokenizer() {  # LANGUAGE: sacreBLEU's
    case $1 in zh) echo zh ;; ja) echo char ;; *) echo 13a ;; esac
}

bench() {  # LANGUAGE FOLDER CLUSTERS SUBSET OPTIONS
    [ -e "$2/results.md" ] || specdec-bench "$data/$1/bin" -s src -t tgt --path "$model" \
        --gen-subset "$4" --vocab-clusters "$3" --reference "$data/$1/raw/$4.tgt" \
        --bleu-tokenize "$(tokenizer "$1")" --threads "$threads" --sentences "$sentences" \
        --output "$2" --resume "${@:5}"
}

methods="fairseq beam 1,greedy,greedy certified,greedy clustered,specdec self"
methods+=",specdec self certified,specdec self clustered drafts"
methods+=",specdec self certified clustered drafts"
for target in "${targets[@]}"; do
    step "time and quality, $src-$target, one sentence at a time"
    bench "$target" "$output/bench/$target" "$output/clusters/$target.pt" test \
        --methods "$methods" --approximate-scores --drafter-vocab-clusters "$output/clusters/$target.drafts.pt"
    bench "$target" "$output/bench/$target-all" "$output/clusters/all.pt" test \
        --methods "greedy,greedy clustered"
done

decode() {  # LANGUAGE FILE OPTIONS: the test set
    [ ! -e "$2.hyp" ] || return 0
    fairseq-generate "$data/$1/bin" -s src -t tgt --user-dir "$plugin" --gen-subset test \
        --path "$model" --required-batch-size-multiple 1 --post-process sentencepiece \
        ${device:+"$device"} "${@:3}" >"$2.log" 2>&1 ||
        fail "fairseq-generate failed. See $2.log, mend it, and run this again."
    hypotheses "$2"
}

mkdir -p "$output/beam" "$output/lossless"
for target in "${targets[@]}"; do
    step "beam 2, 20 sentences at a time, $src-$target"
    for name in full clustered; do
        options=()
        [ $name = full ] || options=(--vocab-clusters "$output/clusters/$target.pt")
        decode "$target" "$output/beam/$target.$name" --task specdec_translation \
            --beam 2 --batch-size 20 ${options[@]+"${options[@]}"}
    done
    step "which are lossless? $src-$target, 32 sentences at a time"
    file=$output/lossless/$target
    decode "$target" "$file.fairseq" --task translation --beam 1 --batch-size 32
    decode "$target" "$file.certified" --task specdec_translation --beam 1 --batch-size 32 \
        --decoding greedy --certified-projection --approximate-scores
    decode "$target" "$file.clustered" --task specdec_translation --beam 1 --batch-size 32 \
        --decoding greedy --vocab-clusters "$output/clusters/$target.pt"
    decode "$target" "$file.drafts" --task specdec_translation --beam 1 --batch-size 32 \
        --decoding specdec --draft-rows 0 \
        --drafter-vocab-clusters "$output/clusters/$target.drafts.pt"
done

runs=()
if [ ${#grid[@]} -gt 0 ]; then
    first=${targets[0]}
    for n in "${grid[@]}"; do
        for k in "${grid_k[@]}"; do
            for m in "${grid_m[@]}"; do
                step "$n clusters, K=$k, neighbours $m, $src-$first, development set"
                run=$n-$k-$m
                file=$output/clusters/$first-$run.pt
                cluster "$first" "$file" "$n" "$k" "$m"
                bench "$first" "$output/grid/$run" "$file" valid \
                    --methods "greedy,greedy clustered"
                runs+=("$output/grid/$run=$file")
            done
        done
    done
fi

step "tables"
directions=()
for target in "${targets[@]}"; do
    directions+=("$src-$target=$output/bench/$target=$output/clusters/$target.pt")
    directions+=("$src-$target, all together=$output/bench/$target-all=$output/clusters/all.pt")
done
"$python" "$root/data_scripts/table_clusters.py" --model "$model" --output "$output/results" \
    "${origin[@]}" --directions "${directions[@]}" ${runs[@]+--grid "${runs[@]}"}
output_of() {  # LANGUAGE SETTING FILE [BASE]
    echo "direction=$src-$1;setting=$2|$3|$data/$1/raw/test.tgt|$(tokenizer "$1")${4:+|$4}"
}

twos=() greedy=()
for target in "${targets[@]}"; do
    for name in full clustered; do
        twos+=("$(output_of "$target" "$name" "$output/beam/$target.$name")")
    done
    file=$output/lossless/$target
    greedy+=("$(output_of "$target" fairseq "$file.fairseq")")
    for name in certified drafts clustered; do
        greedy+=("$(output_of "$target" "$name" "$file.$name" "$file.fairseq.hyp")")
    done
done
for name in twos greedy; do
    declare -n outputs=$name
    "$python" "$root/data_scripts/collect_outputs.py" \
        "$output/results/${name/twos/beam-2}.json" "${origin[@]}" "${outputs[@]}"
done
