#!/usr/bin/env bash
# From clean English text to a table: pairs, a model that rewrites, scores and speed of decoding.
# Every step is skipped when its output exists, and resumes when it was killed.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: run.sh CORPUS OUTPUT [MODEL]

  CORPUS   folder with train, dev and test .en (plain or .gz), a sentence a line; files of
           these names in folders below it are read one after the other. Several: A:B
  OUTPUT   where everything goes
  MODEL    folder of an existing model (model.pt, spm.model, dict.err.txt): none is trained,
           and no pairs to train one are made

Settings, as variables:
  TASK=correct       correct errors that make_errors.py made; or restore: case and punctuation
  JFLEG=             folder with dev.src, dev.ref0 to dev.ref3 and dev.ref.m2.gz, to decode too
  FROM=              folder like MODEL: train on from that model, with its subwords
  DRAFTER=           a block-NAT drafter of MODEL, for --fallback nat
  NEW_SUBWORDS=      yes: learn new subwords all the same, and start from embeddings that
                     change_subwords.py puts together
  PASSES=8           over the training text, each with other errors, cut into other subwords
  ROTATED=           folders like CORPUS, of whose training text a pass reads every fourth line
  ERROR_RATE=0.14 CLEAN_SHARE=0.25   errors for each word, and lines without, of the pairs
  UPDATES=2200 LR=1e-3 SIZE=8000 DIM=256 LAYERS=3   of training, subwords, model
  WORD_LINES=30000   lines of words of the vocabulary, half of them misspelt, in each pass
  SOURCE_DROPOUT=0.1 of subwords of misspelt words, in training
  DROPOUT=0          errors that differ in each pass regularise enough
  AVERAGED=4         checkpoints, 200 updates apart, whose mean is the model
  HELD_OUT=2000      sentences of the test text that are decoded
  SENTENCES=600      of these, and of JFLEG, how many the benchmark decodes; 0: no benchmark
  DECODINGS="fairseq-beam-5 input-guided input-guided-ngram"   scored beside fairseq-beam-1, and
                     with DRAFTER also input-guided-nat
  THREADS=2 DEVICE=--cpu (empty for a GPU) WORKERS=1 SUFFIX=en PYTHON=python

example:
  JFLEG=corpora/jfleg examples/gec/run.sh corpora/pydocs work
  TASK=restore FROM=checkpoints/gec-en UPDATES=400 examples/gec/run.sh corpora/pydocs work
USAGE
}

. "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

[ "${1:-}" != --help ] || { usage; exit; }
[ $# -ge 2 ] || { usage; exit 1; }
corpus=$1 output=$2 given=${3:-}
task=${TASK:-correct} jfleg=${JFLEG:-} drafter=${DRAFTER:-} from=${FROM:-}
updates=${UPDATES:-2200} passes=${PASSES:-8} rotated=${ROTATED:-} held_out=${HELD_OUT:-2000} sentences=${SENTENCES:-600}
suffix=${SUFFIX:-en} threads=${THREADS:-2} device=${DEVICE---cpu} python=${PYTHON:-python}
case $task in
    correct) ;;
    restore)
        [ -z "$jfleg" ] || fail "JFLEG is about TASK=correct. Leave it out."
        passes=1 # all would be alike
        ;;
    *) fail "TASK=$task is neither correct nor restore. Choose one of them." ;;
esac
for folder in "$given" "$from"; do
    [ -z "$folder" ] || [ -e "$folder/model.pt" ] || fail "$folder holds no model.pt. Check the folder."
done
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
plugin=$root/specdec_plugin
text=$output/text     # of both tasks
work=$output/$task
averaged=${AVERAGED:-4} word_lines=${WORD_LINES:-30000}
dropout=(--source-dropout "${SOURCE_DROPOUT:-0.1}")
export OMP_NUM_THREADS=$threads
origin=(--command "$(command_line "examples/gec/run.sh CORPUS OUTPUT${given:+ MODEL}" TASK FROM \
    NEW_SUBWORDS PASSES ERROR_RATE CLEAN_SHARE UPDATES LR SIZE DIM LAYERS WORD_LINES SOURCE_DROPOUT \
    DROPOUT AVERAGED HELD_OUT DECODINGS)" --setting "seed=1")

# Files appear under their names when they are whole.

# --- text and pairs ---------------------------------------------------------------------

lines_of() {  # SPLIT FOLDERS
    local folders folder file
    IFS=: read -r -a folders <<<"$2"
    for folder in "${folders[@]}"; do
        find -L "$folder" -type f \( -name "$1.$suffix" -o -name "$1.$suffix.gz" \) |
            LC_ALL=C sort
    done | while IFS= read -r file; do
        case $file in *.gz) gzip -cd "$file" ;; *) cat "$file" ;; esac
    done
}

clean_text() {  # SPLIT MOST FOLDERS NAME
    [ ! -e "$text/$4.$suffix" ] || return 0
    lines_of "$1" "$3" | LC_ALL=C awk -v most="$2" \
        'NF >= 3 && NF <= 60 && !seen[$0]++ && (!most || n++ < most)' |
        "$python" "$root/data_scripts/gec/tokenise.py" >"$text/$4.tmp"
    [ -s "$text/$4.tmp" ] || fail "$3 holds no text in $1.$suffix. Check the folder."
    mv "$text/$4.tmp" "$text/$4.$suffix"
}

text_of_pass() {  # PASS
    [ ! -e "$text/pass-$1.$suffix" ] || return 0
    {
        cat "$text/train.$suffix"
        [ -z "$rotated" ] || awk -v pass="$1" 'NR % 4 == pass % 4' "$text/rotated.$suffix"
    } >"$text/pass-$1.tmp"
    mv "$text/pass-$1.tmp" "$text/pass-$1.$suffix"
}

make_pairs() {  # NAME SEED
    local clean=$text/$1.$suffix pairs=$work/pairs/$1
    [ ! -e "$pairs.err" ] || return 0  # the last of the two to be there
    if [ "$task" = restore ]; then
        "$python" "$root/data_scripts/gec/strip_case.py" <"$clean" >"$pairs.tmp"
        cp "$clean" "$pairs.cor"
        mv "$pairs.tmp" "$pairs.err"
    else
        # Words are counted in the first training text, which comes first.
        "$python" "$root/data_scripts/gec/make_errors.py" "$clean" --output "$pairs" \
            --error-rate "${ERROR_RATE:-0.14}" --clean-share "${CLEAN_SHARE:-0.25}" \
            --vocabulary "$work/words.txt" --seed "$2" --workers "${WORKERS:-1}"
    fi
}

training_pairs() {  # PASS: those of its text, and of lines of words, half of them misspelt
    local text_of=$work/pairs/pass-$1 words=$work/pairs/words-$1 all=$work/pairs/train-$1 side
    text_of_pass "$1"
    make_pairs "pass-$1" $((100 + $1))
    [ ! -e "$all.err" ] || return 0
    if [ "$task" = correct ] && [ "$word_lines" != 0 ]; then
        "$python" "$root/data_scripts/gec/sample_words.py" "$work/words.txt" \
            --lines "$word_lines" --seed "$1" --output "$words.txt"
        "$python" "$root/data_scripts/gec/make_errors.py" "$words.txt" --output "$words" \
            --error-rate 0.5 --clean-share 0 --mix misspelling=8,typo=1,ending=0.5 \
            --vocabulary "$work/words.txt" --seed $((200 + $1)) --workers "${WORKERS:-1}"
    else
        : | tee "$words.cor" >"$words.err"
    fi
    for side in cor err; do
        cat "$text_of.$side" "$words.$side" >"$all.tmp"
        mv "$all.tmp" "$all.$side"
    done
}

prepare() {  # FOLDER OPTIONS: subwords and binary data
    [ -e "$1/bin/dict.cor.txt" ] || "$python" "$root/data_scripts/prepare_subwords.py" \
        -s err -t cor --output "$1" --workers "${WORKERS:-1}" "${@:2}"
}

further_pass() {  # PASS
    [ ! -e "$work/pass-$1/bin" ] || return 0
    training_pairs "$1"
    prepare "$work/pass-$1" --train "$work/pairs/train-$1" "${dropout[@]}" \
        --subword-model "$work/data/spm.model" --dictionary "$work/data/bin/dict.err.txt"
}

# --- the model --------------------------------------------------------------------------

train_model() {
    local dim=${DIM:-256} layers=${LAYERS:-3} start=${from:+$from/model.pt} bins=$work/data/bin
    for ((pass = 2; pass <= passes; pass++)); do bins+=:$work/pass-$pass/bin; done
    if [ -n "$from" ] && [ -n "${NEW_SUBWORDS:-}" ]; then
        start=$work/start.pt
        [ -e "$start" ] || "$python" "$root/data_scripts/change_subwords.py" "$from/model.pt" \
            --subword-model "$from/spm.model" --dictionary "$from/dict.err.txt" \
            --new-dictionary "$work/data/bin/dict.err.txt" --output "$start"
    fi
    fairseq_train "$bins" -s err -t cor --user-dir "$plugin" \
        --task specdec_translation ${device:+"$device" --cpu-autocast bfloat16} \
        ${start:+--finetune-from-model "$start"} \
        --arch transformer --share-all-embeddings --dropout "${DROPOUT:-0}" \
        --encoder-layers "$layers" --encoder-embed-dim "$dim" --encoder-attention-heads 4 \
        --decoder-layers "$layers" --decoder-embed-dim "$dim" --decoder-attention-heads 4 \
        --encoder-ffn-embed-dim $((4 * dim)) --decoder-ffn-embed-dim $((4 * dim)) \
        --criterion projected_cross_entropy --label-smoothing 0 \
        --optimizer adam --adam-betas '(0.9, 0.98)' --lr "${LR:-1e-3}" \
        --lr-scheduler inverse_sqrt --warmup-updates 300 \
        --max-epoch "$passes" --max-update "$updates" --max-tokens 4096 \
        --save-interval-updates 200 --keep-interval-updates "$averaged" --no-epoch-checkpoints \
        --log-format simple --log-interval 20 --num-workers 0 --seed 1 --save-dir "$work/training"
    average_checkpoints "$work/training" "$model"
}

# --- decoding and scores ----------------------------------------------------------------

score() {  # DATA FOLDER NAME M2 REFERENCES: those of fairseq's beam 1 if the output is the same
    local name=$2/$3 first=$2/fairseq-beam-1
    if [ -e "$first.json" ] && cmp -s "$first.hyp" "$name.hyp"; then
        keep_output "$name.json" cat "$first.json"
        return
    fi
    keep_output "$name.json" specdec-gec-score --source "$1/raw/test.err" \
        --hypothesis "$name.hyp" --m2 "$4" --references "${@:5}" --json
}

collect_scores() {  # FOLDER
    local name rows=()
    for name in "${decodings[@]}"; do
        echo "$name: $(same_lines "$1/fairseq-beam-1.hyp" "$1/$name.hyp") lines as fairseq-beam-1"
    done | tee "$1/same.txt"
    for name in "${decodings[@]}"; do rows+=("$name=$1/$name.json"); done
    "$python" "$root/data_scripts/example_results.py" collect "$1/scores.json" \
        "${origin[@]}" "${rows[@]}"
}

decode_and_score() {  # DATA FOLDER M2 REFERENCES
    mkdir -p "$2"
    local name flags
    for name in "${decodings[@]}"; do
        decoding_flags "$name"
        case $name in
            *-nat) flags+=(--fallback nat --drafter-path "$drafter" --draft-confidence 0.2) ;;
        esac
        decode "$1/bin" "$model" "$2/$name" -s err -t cor "${flags[@]}"
        score "$1" "$2" "$name" "${@:3}"
    done
    collect_scores "$2"
}

bench() {  # DATA FOLDER OPTIONS
    [ "$sentences" != 0 ] || return 0
    [ ! -e "$2/results.md" ] || return 0
    specdec-bench "$1/bin" -s err -t cor --path "$model" --reference "$1/raw/test.cor" \
        --sentences "$sentences" --threads "$threads" --output "$2" --resume "${@:3}"
}

benchmarks() {  # DATA FOLDER
    bench "$1" "$2/bench" --edit-ratio --examples 7 \
        --methods "fairseq beam 5,fairseq beam 1,greedy,specdec self,input-guided"
    case " ${decodings[*]} " in
        *" input-guided-ngram "*)
            bench "$1" "$2/bench-ngram" --methods "greedy,input-guided" --fallback ngram
            ;;
    esac
}

# --- all steps --------------------------------------------------------------------------

mkdir -p "$text" "$work/pairs"

step "clean text: unique lines of 3 to 60 words, tokenised"
clean_text train 0 "$corpus" train
clean_text dev 0 "$corpus" dev
clean_text test "$held_out" "$corpus" test
[ -z "$rotated" ] || clean_text train 0 "$rotated" rotated

step "pairs to $task"
training_pairs 1
make_pairs dev 2
make_pairs test 3

step "subwords and binary data"
model=${given:-$work}/model.pt
options=()
[ -n "$given" ] || options+=(--train "$work/pairs/train-1" --valid "$work/pairs/dev" "${dropout[@]}")
parent=${given:-$from}
[ -z "${NEW_SUBWORDS:-}" ] || parent=$given
if [ -n "$parent" ]; then
    options+=(--subword-model "$parent/spm.model" --dictionary "$parent/dict.err.txt")
else
    options+=(--size "${SIZE:-8000}")
fi
prepare "$work/data" --test "$work/pairs/test" "${options[@]}"

if [ ! -e "$model" ]; then
    step "further passes"
    for ((pass = 2; pass <= passes; pass++)); do further_pass "$pass"; done
    step "model"
    train_model
fi

# The others are compared with the first.
more=${DECODINGS-fairseq-beam-5 input-guided input-guided-ngram}
read -r -a decodings <<<"fairseq-beam-1 $more"
[ -z "$drafter" ] || decodings+=(input-guided-nat)

step "held-out pairs"
data=$work/data
[ -e "$work/test.m2" ] || "$python" "$root/data_scripts/gec/parallel_to_m2.py" \
    "$data/raw/test" --output "$work/test.m2"
decode_and_score "$data" "$work/test" "$work/test.m2" "$data/raw/test.cor"
benchmarks "$data" "$work/test"

[ -n "$jfleg" ] || exit 0
step "JFLEG, on which nothing was trained"
data=$work/jfleg-data
mkdir -p "$data"
cp "$jfleg/dev.src" "$data/test.err"
cp "$jfleg/dev.ref0" "$data/test.cor"
prepare "$data" --test "$data/test" --dictionary "$work/data/bin/dict.err.txt" \
    --subword-model "$work/data/spm.model"
decode_and_score "$data" "$work/jfleg" "$jfleg/dev.ref.m2.gz" "$jfleg"/dev.ref[0-3]
benchmarks "$data" "$work/jfleg"
