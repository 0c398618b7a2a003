#!/usr/bin/env bash
# The shipped model, one of yours and a big one of random weights on a GPU: identity, then speed.
# An interrupted run resumes.
set -euo pipefail

usage() {
    cat <<'END'
usage: run.sh CORPUS OUTPUT

  CORPUS   folder with train, dev and test .en and .es (plain or .gz)
  OUTPUT   where everything goes

Settings, as variables:
  DEVICE=cuda        any device of PyTorch; cpu tries the script out
  MODELS=checkpoints/pydocs-en-es   folder of verifier.pt, spm.model, dictionaries, and drafter.pt
                     for specdec, where there is one
  BASE=              folder like MODELS of another model, which is measured too
  CHECKED=1975       sentences that are compared with fairseq's, in batches of 64 and of 8
  CHECKED_ALONE=400  the same, one at a time
  PROCESSES=         that compare them at once, for each of the three; default: a third of the
                     processors, at most 5
  SENTENCES=100      of the test set, that are timed one at a time
  MANY=512           the same, in batches
  BATCHES=8,32,128   sentences a batch
  VOCABULARY=128000 WIDTH=2   symbols of a model whose projection is clustered, and how many times
                     as wide it is as MODELS; VOCABULARY=0: none
  CLUSTERS=500 TOP_K=3 NEIGHBOURS=16 STATES=70000   of its clusters
  LAYERS=12 DIM=1024 SYMBOLS=128000 LENGTH=40 FEW=16   of a big model with random weights, the
                     tokens of its outputs, and the sentences that are timed; LAYERS=0: none
  STEPS="models check one many projection large big samples"   what is done
  SRC=en TGT=es PYTHON=python

example:
  examples/gpu/run.sh corpora/pydocs/en-es work
END
}

[ "${1:-}" != --help ] || { usage; exit; }
[ $# -ge 2 ] || { usage; exit 1; }
corpus=$1 output=$2
src=${SRC:-en} tgt=${TGT:-es} device=${DEVICE:-cuda} python=${PYTHON:-python}
sentences=${SENTENCES:-100} many=${MANY:-512} batches=${BATCHES:-8,32,128}
layers=${LAYERS:-12} dim=${DIM:-1024} symbols=${SYMBOLS:-128000} length=${LENGTH:-40}
vocabulary=${VOCABULARY:-128000}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
processes=${PROCESSES:-$(($(nproc) < 6 ? 1 : $(nproc) < 15 ? $(nproc) / 3 : 5))}
steps=${STEPS:-models check one many projection large big samples}
plugin=$root/specdec_plugin models=${MODELS:-$root/checkpoints/pydocs-en-es}

. "$root/examples/steps.sh"

"$python" - "$device" <<'END' || fail "PyTorch cannot use DEVICE=$device. DEVICE=cpu runs without a GPU."
import sys, torch
torch.zeros(1, device=sys.argv[1])
END
# Other programs that are timed beside ours, where they are installed, and find their libraries.
peers=()
! "$python" - "$device" 2>/dev/null <<'END' || peers=(--peer ctranslate2)
import ctypes, sys, ctranslate2
sys.argv[1].startswith("cpu") or ctypes.CDLL("libcublas.so.12")
END
mkdir -p "$output/large" "$output/big"

# --- what is measured -------------------------------------------------------------------

prepare() {  # MODELS FOLDER
    "$python" "$root/data_scripts/prepare_subwords.py" -s "$src" -t "$tgt" --output "$2/data" \
        --train "$corpus/train" --valid "$corpus/dev" --test "$corpus/test" \
        --subword-model "$1/spm.model" --dictionary "$1/dict.$src.txt"
}

# The model, wider and with a large vocabulary, whose new words resemble rare ones.
make_large() {
    local large=$output/large data=$output/shipped/data/bin language
    mkdir -p "$large/bin"
    cp "$data"/{train,test}.* "$large/bin/"
    for language in "$src" "$tgt"; do
        awk -v symbols="$vocabulary" '{ print } END { for (i = NR + 4; i < symbols; i++) print "w" i " 0" }' \
            "$data/dict.$language.txt" >"$large/bin/dict.$language.txt"
    done
    [ -e "$large/model.pt" ] || "$python" "$root/data_scripts/grow_model.py" "$models/verifier.pt" \
        --width "${WIDTH:-2}" --symbols "$vocabulary" --output "$large/model.pt"
    [ -e "$large/clusters.pt" ] || specdec-cluster-vocab "$large/bin" -s "$src" -t "$tgt" \
        --user-dir "$plugin" --path "$large/model.pt" --gen-subset train $(on_cpu) \
        --states "${STATES:-70000}" --clusters "${CLUSTERS:-500}" --top-k "${TOP_K:-3}" \
        --neighbours "${NEIGHBOURS:-16}" --output "$large/clusters.pt"
}

make_big() {
    local big=$output/big
    "$python" "$root/data_scripts/large_model.py" --folder "$big/model" --output /dev/null \
        --layers "$layers" --dim "$dim" --ffn "$((4 * dim))" --symbols "$symbols" \
        --sentences "$many" --ways
    [ -e "$big/bin" ] || {
        rm -rf "$big/bin.tmp"
        fairseq-preprocess -s src -t tgt --srcdict "$big/model/dict.src.txt" \
            --tgtdict "$big/model/dict.tgt.txt" --testpref "$big/model/test.src-tgt" \
            --destdir "$big/bin.tmp"
        mv "$big/bin.tmp" "$big/bin"
    }
}

on_cpu() { [ "$device" != cpu ] || echo --cpu; }

with_drafter() {  # MODELS: its flags as ${drafter[@]}, and its method as $drafts
    drafter=() drafts=
    [ ! -e "$1/drafter.pt" ] || { drafter=(--drafter-path "$1/drafter.pt") drafts=,specdec; }
}

# --- measurements -----------------------------------------------------------------------

check_all() {  # MODELS FOLDER: all sizes at once, because the host is busier than the GPU
    with_drafter "$1"
    local running=() each
    for each in "64 ${CHECKED:-1975}" "8 ${CHECKED:-1975}" "1 ${CHECKED_ALONE:-400}"; do
        check "$1" "$2" $each >"$2/identity-${each% *}.log" 2>&1 &
        running+=($!)
    done
    for each in "${running[@]}"; do
        wait "$each" || fail "Not all could be compared: see $2/identity-*.log."
    done
    cat "$2"/identity-*.txt
}

check() {  # MODELS FOLDER SIZE SENTENCES: each method finds fairseq's tokens, or ties are listed
    local told=$2/identity-$3 shard running=() each
    [ ! -e "$told.txt" ] || return 0
    local command=(specdec-check "$2/data/bin" -s "$src" -t "$tgt" --path "$1/verifier.pt"
        ${drafter[@]+"${drafter[@]}"} --device "$device" --sentences "$4" --batch-size "$3"
        --output "$told" --shards "$processes"
        --methods "greedy$drafts,specdec self,hybrid-jacobi,gs-jacobi,input-guided,auto,beam")
    for ((shard = 0; shard < processes; shard++)); do
        OMP_NUM_THREADS=1 "${command[@]}" --shard "$shard" >"$told.$shard.log" 2>&1 &
        running+=($!)
    done
    # A shard that finds a difference fails; the report of all of them tells it.
    for each in "${running[@]}"; do wait "$each" || true; done
    "${command[@]}" | tee "$told.tmp" || [ -s "$told.tmp" ]
    mv "$told.tmp" "$told.txt"
}

bench() {  # DATA SOURCE TARGET OUTPUT SENTENCES BATCHES FLAGS
    specdec-bench "$1" -s "$2" -t "$3" --device "$device" --output "$4" --resume \
        --sentences "$5" --repeats 3 --sweep batch --batch-sizes "$6" "${@:7}"
}

measure() {  # MODELS FOLDER SENTENCES BATCHES NAME
    with_drafter "$1"
    bench "$2/data/bin" "$src" "$tgt" "$2/$5" "$3" "$4" --path "$1/verifier.pt" \
        ${drafter[@]+"${drafter[@]}"} ${peers[@]+"${peers[@]}"} \
        --methods "fairseq beam 5,fairseq beam 1,greedy$drafts,specdec self,auto,beam"
}

sample() {  # MODELS FOLDER
    with_drafter "$1"
    bench "$2/data/bin" "$src" "$tgt" "$2/samples" "$sentences" 1,32 --path "$1/verifier.pt" \
        ${drafter[@]+"${drafter[@]}"} --sampling --methods "fairseq beam 1,greedy$drafts"
}

of_each() {  # COMMAND ARGUMENTS: for the model, and for the user's own
    "$1" "$models" "$output/shipped" "${@:2}"
    [ -z "${BASE:-}" ] || "$1" "$BASE" "$output/base" "${@:2}"
}

wanted() { case " $steps " in *" $1 "*) step "$2" ;; *) return 1 ;; esac; }

step "binary data"
of_each prepare

if wanted models "models and clusters"; then
    [ "$vocabulary" = 0 ] || make_large
    [ "$layers" = 0 ] || make_big
fi
if wanted check "the tokens are fairseq's, in batches of 64, 8 and 1"; then
    of_each check_all
fi
if wanted one "latency, one sentence at a time"; then
    of_each measure "$sentences" 1 one
fi
if wanted many "throughput in batches"; then
    of_each measure "$many" "$batches" many
fi
if [ "$vocabulary" != 0 ] && wanted projection "projection on $vocabulary symbols"; then
    "$python" "$root/data_scripts/projection_speed.py" --symbols "$vocabulary" --device "$device" \
        --active-least $((vocabulary / 80)) --active-most $((vocabulary / 20)) \
        --output "$output/large/projection.json"
fi
if [ "$vocabulary" != 0 ] && wanted large "decoding with $vocabulary symbols"; then
    bench "$output/large/bin" "$src" "$tgt" "$output/large/speed" "$sentences" 1,32 \
        --path "$output/large/model.pt" --vocab-clusters "$output/large/clusters.pt" \
        --methods "fairseq beam 1,greedy,greedy clustered"
fi
if [ "$layers" != 0 ] && wanted big "a big model of random weights"; then
    bench "$output/big/bin" src tgt "$output/big/speed" "${FEW:-16}" 1,32 \
        --path "$output/big/model/model.pt" --max-len-b "$length" \
        --methods "fairseq beam 5,fairseq beam 1,greedy,specdec self,auto,beam"
fi
if wanted samples "samples"; then
    of_each sample
fi
