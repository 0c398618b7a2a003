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
  CHECKED=1975       sentences that are compared with fairseq's
  SENTENCES=400      of the test set, that are timed
  BATCHES=1,8,32,128 sentences a batch
  LAYERS=12 DIM=1024 SYMBOLS=128000   of the big model; LAYERS=0: none
  SRC=en TGT=es PYTHON=python

example:
  examples/gpu/run.sh corpora/pydocs/en-es work
END
}

[ "${1:-}" != --help ] || { usage; exit; }
[ $# -ge 2 ] || { usage; exit 1; }
corpus=$1 output=$2
src=${SRC:-en} tgt=${TGT:-es} device=${DEVICE:-cuda} python=${PYTHON:-python}
sentences=${SENTENCES:-400} batches=${BATCHES:-1,8,32,128}
layers=${LAYERS:-12} dim=${DIM:-1024} symbols=${SYMBOLS:-128000}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

. "$root/examples/steps.sh"

"$python" - "$device" <<'END' || fail "PyTorch cannot use DEVICE=$device. DEVICE=cpu runs without a GPU."
import sys, torch
torch.zeros(1, device=sys.argv[1])
END
# Other programs that are timed beside ours, where they are installed.
peers=()
! "$python" -c 'import ctranslate2' 2>/dev/null || peers=(--peer ctranslate2)
mkdir -p "$output"

prepare() {  # MODELS FOLDER
    "$python" "$root/data_scripts/prepare_subwords.py" -s "$src" -t "$tgt" --output "$2/data" \
        --train "$corpus/train" --valid "$corpus/dev" --test "$corpus/test" \
        --subword-model "$1/spm.model" --dictionary "$1/dict.$src.txt"
}

with_drafter() {  # MODELS: its flags as ${drafter[@]}, and its method as $drafts
    drafter=() drafts=
    [ ! -e "$1/drafter.pt" ] || { drafter=(--drafter-path "$1/drafter.pt") drafts=,specdec; }
}

check() {  # MODELS FOLDER: each method finds fairseq's tokens, or ties are listed
    local size told
    for size in 1 8 64; do
        told=$2/identity-$size
        [ ! -e "$told.txt" ] || { cat "$told.txt"; continue; }
        specdec-check "$2/data/bin" -s "$src" -t "$tgt" \
            --path "$1/verifier.pt" ${drafter[@]+"${drafter[@]}"} --device "$device" \
            --sentences "${CHECKED:-1975}" --batch-size "$size" --output "$told" \
            --methods "greedy$drafts,specdec self,hybrid-jacobi,gs-jacobi,input-guided,beam" |
            tee "$told.tmp"
        mv "$told.tmp" "$told.txt"
    done
}

bench() {  # DATA SOURCE TARGET OUTPUT FLAGS
    specdec-bench "$1" -s "$2" -t "$3" --device "$device" --output "$4" --resume \
        --sentences "$sentences" --repeats 2 --sweep batch --batch-sizes "$batches" "${@:5}"
}

measure() {  # MODELS FOLDER
    with_drafter "$1"
    step "$1: binary data"
    prepare "$1" "$2"
    step "$1: the tokens are fairseq's"
    check "$1" "$2"
    step "$1: latency and throughput"
    bench "$2/data/bin" "$src" "$tgt" "$2/speed" --path "$1/verifier.pt" \
        ${drafter[@]+"${drafter[@]}"} ${peers[@]+"${peers[@]}"} \
        --methods "fairseq beam 5,fairseq beam 1,greedy$drafts,specdec self,auto,beam"
    step "$1: samples"
    bench "$2/data/bin" "$src" "$tgt" "$2/samples" --path "$1/verifier.pt" \
        ${drafter[@]+"${drafter[@]}"} --sampling --methods "fairseq beam 1,greedy$drafts"
}

measure "${MODELS:-$root/checkpoints/pydocs-en-es}" "$output/shipped"
[ -z "${BASE:-}" ] || measure "$BASE" "$output/base"
if [ "$layers" != 0 ]; then
    step "a big model of random weights"
    big=$output/big
    "$python" "$root/data_scripts/large_model.py" --folder "$big/model" --output /dev/null \
        --layers "$layers" --dim "$dim" --ffn "$((4 * dim))" --symbols "$symbols" \
        --sentences "$sentences" --ways
    [ -e "$big/bin" ] || {
        rm -rf "$big/bin.tmp"
        fairseq-preprocess -s src -t tgt --srcdict "$big/model/dict.src.txt" \
            --tgtdict "$big/model/dict.tgt.txt" --testpref "$big/model/test.src-tgt" \
            --destdir "$big/bin.tmp"
        mv "$big/bin.tmp" "$big/bin"
    }
    bench "$big/bin" src tgt "$big/speed" --path "$big/model/model.pt" --max-len-b 40 \
        --methods "fairseq beam 5,fairseq beam 1,greedy,specdec self,auto,beam"
fi
