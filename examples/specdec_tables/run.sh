#!/usr/bin/env bash
# The tables of the papers on one teacher and one verifier: models, drafters, heads, benchmarks.
# Every step is skipped when its output exists, and resumes when it was killed.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: run.sh CORPUS OUTPUT [TEACHER]

  CORPUS   folder with train, dev and test .en and .es (plain or .gz)
  OUTPUT   where everything goes; may be that of translation_pydocs/run.sh
  TEACHER  folder of an existing teacher (teacher.pt, spm.model, dict.en.txt):
           its subwords are used and no teacher is trained

Each table is OUTPUT/results/TABLE.json; the example's README tells what it is.

Settings, as variables:
  TABLES="main k beta-tau forms ensemble deep batch blockwise jacobi"
                      what is made; clusters is another one, which needs OTHERS
  VERIFIER=           folder of a trained verifier (verifier.pt, spm.model, dict.en.txt), such
                      as checkpoints/pydocs-en-es; TABLES=jacobi needs no TEACHER then, and other
                      tables need the one whose subwords it has
  K=25                block size of the papers' drafter
  ROUND=500 GAIN=1 MOST=20000
                      it is trained in rounds of so many updates until acceptance on the
                      development set gains less than GAIN percent, or for MOST updates
  EQUAL=time          the other drafters are trained for as long; updates: for as many updates
  LR=1e-3 WARMUP=500 HOLD=1500 DECAY=1500
                      of drafters in the papers' form and heads: the learning rate rises, is held,
                      falls to a twentieth, and stays there
  HOLD_OURS=1300 DECAY_OURS=1000
                      of ours, whose updates take longer
  PROCESSES=1         that train together
  MAX_TOKENS=4096     of a batch of each process; a batch of ours has 2048 in any case
  KS="10 15 20 25 30" block sizes of the table k, each with a drafter of its own
  BETAS="3 5" TAUS="1 2 3 4 5"
  BATCHES="1 4 8 16 32"
  SEEDS="2 3"         of the teachers that the ensemble has besides the first
  DEEP="12 2"         encoder and decoder layers of the table deep
  UPDATES_DEEP=3122   of its verifier
  HEADS="2 4 6 8 10"  block sizes of blockwise decoding, and LEAST="2 3" its minimum blocks
  FORMS="heads nat-plain nat-base nat-wide ours"
                      drafters of the table forms, and HEADS_K=8 of its heads
  UPDATES_HEADS=900   of each cell of the table blockwise
  BLOCKS="3 5"        of the Jacobi solvers
  OTHERS=             folders of more pairs with the source language, such as
                      "corpora/pydocs/en-fr corpora/pydocs/en-pt"
  CLUSTERS="100 200 300 400 500" STATES=300000 UPDATES_MANY=6400
                      of the table clusters, and its model of several languages
  SENTENCES=          so many of each set, spread over it; empty: all
  MAX_LEN=200         the most tokens of an output, in the benchmarks
  UNTIL=models        train, and measure nothing yet: trainings may share a machine, times may not
  REPEATS=1 THREADS=2 DEVICE=--cpu (empty for a GPU) PYTHON=python SRC=en TGT=es
  and those of translation_pydocs/run.sh, for teacher, distillation and verifier

example:
  TABLES="main forms" examples/specdec_tables/run.sh corpora/pydocs/en-es work
USAGE
}

. "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

[ "${1:-}" != --help ] || { usage; exit; }
[ $# -ge 2 ] || { usage; exit 1; }
corpus=$1 output=$2 given=${3:-}
src=${SRC:-en} tgt=${TGT:-es} threads=${THREADS:-2} repeats=${REPEATS:-1} sentences=${SENTENCES:-}
max_len=${MAX_LEN:-200} until=${UNTIL:-} max_tokens=${MAX_TOKENS:-4096}
device=${DEVICE---cpu} python=${PYTHON:-python}
read -r -a tables <<<"${TABLES:-main k beta-tau forms ensemble deep batch blockwise jacobi}"
schedule=(--lr-scheduler tri_stage --warmup-steps "${WARMUP:-500}" --hold-steps "${HOLD:-1500}"
    --decay-steps "${DECAY:-1500}" --final-lr-scale 0.05)
k=${K:-25} round=${ROUND:-500} gain=${GAIN:-1} most=${MOST:-20000} equal=${EQUAL:-time}
read -r -a others <<<"${OTHERS:-}" || true
read -r -a deep <<<"${DEEP:-12 2}"
read -r -a forms <<<"${FORMS:-heads nat-plain nat-base nat-wide ours}"
for form in ${forms[@]+"${forms[@]}"}; do
    case $form in
        heads | nat-plain | nat-base | nat-wide | ours) ;;
        *) fail "FORMS names $form, which is no form of a drafter. run.sh --help lists them." ;;
    esac
done
[ ${#forms[@]} -gt 0 ] || fail "FORMS names no form of a drafter. Give some, such as ours."
[ ${#tables[@]} -gt 0 ] || fail "TABLES names no table. Give some, such as main."
for table in "${tables[@]}"; do
    case $table in
        main | k | beta-tau | forms | ensemble | deep | batch | blockwise | jacobi) ;;
        clusters) [ ${#others[@]} -gt 0 ] ||
            fail "The table clusters needs more languages: give folders of pairs as OTHERS." ;;
        *) fail "There is no table $table. run.sh --help lists them." ;;
    esac
done
ready=${VERIFIER:-}
if [ -n "$ready" ]; then
    [ -n "$given" ] || [ "${tables[*]}" = jacobi ] || fail "With VERIFIER, tables other than jacobi \
need TEACHER, its teacher. Give both, or leave VERIFIER out."
    [ -e "$ready/verifier.pt" ] || fail "$ready holds no verifier.pt. Check the folder."
fi
case $equal in time | updates) ;; *) fail "EQUAL=$equal: give time or updates." ;; esac
[ ${#deep[@]} -eq 2 ] || fail "DEEP='${deep[*]}': give two numbers of layers, such as \"12 2\"."
for other in ${others[@]+"${others[@]}"}; do
    case $(basename "$other") in
        "$src"-?*) ;;
        *) fail "OTHERS names $other: give folders whose names begin with $src-, such as $src-fr." ;;
    esac
done
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
plugin=$("$python" -m specdec_plugin)
runs=$output/runs models=$output/models results=$output/results
export OMP_NUM_THREADS=$threads
mkdir -p "$runs" "$models" "$results"
small_training

# --- steps ------------------------------------------------------------------------------

wanted() {  # TABLE: whether it is to be made now
    [ ! -e "$results/$1.json" ] && [[ " ${tables[*]} " == *" $1 "* ]]
}

form() { [[ " ${forms[*]} " == *" $1 "* ]]; }  # NAME: whether the table forms has it

# The papers' drafter: an encoder of its own, a prefix that sees the masks, each token for itself,
# glancing (Xia et al., 2023, section 3.1). It has the shape of VERIFIER and starts from it.
train_nat() {  # BIN VERIFIER FOLDER K OPTIONS
    local form
    form=$(specdec-init-drafter "$1" -s "$src" -t "$tgt" --verifier "$2" --output "$3.init.pt" \
        --block-size "$4" --prefix-attention full | tail -n 1)
    read -r -a form <<<"$form"
    fairseq_train "$1" --task block_nat_translation "${form[@]}" --finetune-from-model "$3.init.pt" \
        "${small_training[@]}" --seed 1 --dropout 0.1 --save-dir "$3" \
        --criterion glancing_block_loss --glancing-updates "$most" --clip-norm 5 \
        --best-checkpoint-metric accepted --maximize-best-checkpoint-metric \
        --lr "${LR:-1e-3}" "${schedule[@]}" \
        --max-tokens "$max_tokens" "${@:5}"
}

# Rounds of training until a round gains too little, the learning rate having fallen; FOLDER.rounds has a line for each: updates,
# hours, accepted drafted tokens on the development set. COMMAND, which trains FOLDER, gets --max-update.
converge() {  # FOLDER COMMAND
    [ ! -e "$1.pt" ] || return 0
    local updates=0 before=0 now fallen=$((${WARMUP:-500} + ${HOLD:-1500} + ${DECAY:-1500}))
    touch "$1.rounds"
    while [ "$updates" -lt "$most" ]; do
        updates=$((updates + round))
        if ! grep -q "^$updates " "$1.rounds"; then
            "${@:2}" --max-update "$updates"
            "$python" "$root/data_scripts/training_progress.py" "$1/checkpoint_last.pt" >>"$1.rounds"
        fi
        now=$(awk -v u="$updates" '$1 == u { print $3 }' "$1.rounds")
        [ -n "$now" ] || fail "$1.rounds has no line of $updates updates. Remove it and $1, and start again."
        if [ "$((updates - round))" -ge "$fallen" ] &&
            awk -v a="$before" -v b="$now" -v g="$gain" 'BEGIN { exit !(b < a * (1 + g / 100)) }'; then
            break
        fi
        before=$now
    done
    newest_mean "$1"
}

# The mean of the newest five checkpoints of FOLDER, FOLDER.pt.
newest_mean() { average_checkpoints "$1" "$1.pt" 5; }  # FOLDER

# As long a training as that of FOLDER, as ${budget[@]}.
budget_of() {  # FOLDER
    local updates hours
    read -r updates hours _ < <(tail -n 1 "$1.rounds")
    budget=(--max-update "$updates")
    [ "$equal" = updates ] || budget=(--stop-time-hours "$hours")
}

# A drafter of the papers' form that is trained as long as the first one, FOLDER.pt.
equal_nat() {  # BIN VERIFIER FOLDER K OPTIONS
    [ ! -e "$3.pt" ] || return 0
    budget_of "$models/nat-base"
    train_nat "$@" "${budget[@]}"
    newest_mean "$3"
}

# Proposal heads in the form of Stern et al. (2018): joint, one drawn for each update.
train_heads() {  # BIN BASE FOLDER K OPTIONS
    fairseq_train "$1" -s "$src" -t "$tgt" "${small_training[@]}" --seed 1 \
        --task blockwise_translation --arch blockwise_transformer --verifier-path "$2" \
        --block-size "$4" --heads joint --criterion blockwise_cross_entropy --head-loss random \
        --dropout 0.1 --max-tokens "$max_tokens" --save-dir "$3" "${@:5}"
}

# How long FOLDER was trained, as labels of its rows.
trained() {  # FOLDER
    "$python" "$root/data_scripts/training_progress.py" "$1/checkpoint_last.pt" |
        awk '{ printf "updates=%s;training hours=%s", $1, $2 }'
}

bench() {  # NAME MODEL SUBSET OPTIONS: what it leaves is runs/NAME
    [ ! -e "$runs/$1/results.md" ] && [ "$until" != models ] || return 0
    specdec-bench "$data" -s "$src" -t "$tgt" --path "$2" --gen-subset "$3" \
        --reference "$output/data/raw/$3.$tgt" --threads "$threads" --repeats "$repeats" \
        --max-len-b "$max_len" ${sentences:+--sentences "$sentences"} --output "$runs/$1" --resume "${@:4}"
}

# k tokens are drafted in each iteration, as in the papers, whatever it costs.
always=(--draft-rows 0 --draft-confidence 1e-9)
plain="fairseq beam 5,fairseq beam 1,greedy"
high_quality="specdec++ -> specdec++ β=3 τ=1" high_efficiency="specdec++ -> specdec++ β=5 τ=3"

# The rows of the papers' main table for one verifier and one drafter.
bench_pair() {  # NAME VERIFIER DRAFTER
    bench "$1" "$2" test --drafter-path "$3" "${always[@]}" \
        --methods "$plain,nat,specdec,specdec++" --top-beta 5 --tolerance 3
    bench "$1-quality" "$2" test --drafter-path "$3" "${always[@]}" \
        --methods "$plain,specdec++" --top-beta 3 --tolerance 1
}

pair_of() {  # NAME LABELS: what to collect of it, as ${pair[@]}
    pair=("$runs/$1|$2|${plain//,/;};nat;specdec" "$runs/$1-quality|$2|$high_quality"
        "$runs/$1|$2|$high_efficiency")
}

origin=(--command "$(command_line "examples/specdec_tables/run.sh CORPUS OUTPUT${given:+ TEACHER}" \
    TABLES FORMS VERIFIER DISTILLED ROUND GAIN MOST EQUAL LR WARMUP HOLD DECAY HOLD_OURS \
    DECAY_OURS PROCESSES MAX_TOKENS \
    UPDATES_DEEP UPDATES_HEADS OTHERS CLUSTERS STATES UPDATES_MANY)"
    --setting "k=$k" --setting "seed=1" --setting "threads=$threads" --setting "equal=$equal"
    --setting "updates in a round=$round" --setting "gain in %=$gain"
    --setting "sentences=${sentences:-all}" --setting "repeats=$repeats"
    --setting "most tokens=$max_len")

collect() {  # TABLE RUNS
    [ "$until" != models ] || return 0
    "$python" "$root/data_scripts/collect_runs.py" "$results/$1.json" "${origin[@]}" "${@:2}"
}

# --- models that several tables need ----------------------------------------------------

made=0
for table in "${tables[@]}"; do [ -e "$results/$table.json" ] || made=1; done
[ $made = 1 ] || { step "all tables are in $results"; exit 0; }

data=$output/distilled/bin
teacher=${given:-$output}/teacher.pt verifier=$output/verifier.pt drafter=$models/nat-base.pt
if [ -n "$ready" ] && [ "${tables[*]}" = jacobi ]; then
    UNTIL=data "$root/examples/translation_pydocs/run.sh" "$corpus" "$output" "$ready"
    data=$output/data/bin
else
    UNTIL=greedy "$root/examples/translation_pydocs/run.sh" "$@"
fi
[ -z "$ready" ] || verifier=$ready/verifier.pt
layers=${LAYERS:-3}

needs_drafter() {
    local table
    for table in main k beta-tau forms ensemble deep batch; do ! wanted "$table" || return 0; done
    return 1
}
if needs_drafter; then
    step "the papers' drafter: NAT-base, k=$k"
    converge "$models/nat-base" train_nat "$data" "$verifier" "$models/nat-base" "$k"
    [ "$until" = models ] || [ -e "$results/rounds.json" ] ||
        "$python" "$root/data_scripts/training_rounds.py" \
        "$results/rounds.json" "${origin[@]}" --figure "accepted drafted tokens" \
        "$models/nat-base.rounds"
    budget_of "$models/nat-base"
fi

# --- tables of SpecDec ------------------------------------------------------------------

if wanted main; then
    step "main: teacher, drafter alone, SpecDec, high quality, high efficiency"
    bench teacher "$teacher" test --methods "fairseq beam 5"
    bench_pair main "$verifier" "$drafter"
    pair_of main "model=verifier"
    collect main "$runs/teacher|model=teacher" "${pair[@]}"
    [ "$until" = models ] || cp "$runs/main/speedup-distribution.png" "$results/speedups.png"
fi

if wanted k; then
    step "k: a drafter for each block size"
    found=()
    read -r -a sizes <<<"${KS:-10 15 20 25 30}"
    for size in "${sizes[@]}"; do
        folder=$models/nat-k$size
        if [ "$size" = "$k" ]; then
            folder=$models/nat-base
        else
            equal_nat "$data" "$verifier" "$folder" "$size"
        fi
        bench "k$size" "$verifier" valid --drafter-path "$folder.pt" "${always[@]}" \
            --methods "fairseq beam 5,greedy,specdec++" --top-beta 3 --tolerance 1
        [ ${#found[@]} -gt 0 ] || found=("$runs/k$size||fairseq beam 5;greedy")
        found+=("$runs/k$size|k=$size;$(trained "$folder")|specdec++")
    done
    collect k "${found[@]}"
fi

if wanted beta-tau; then
    step "beta-tau: β and τ on the development set"
    betas=${BETAS:-3 5} taus=${TAUS:-1 2 3 4 5}
    bench beta-tau "$verifier" valid --drafter-path "$drafter" "${always[@]}" \
        --methods "greedy,specdec++" --sweep beta-tau --betas "${betas// /,}" --tolerances "${taus// /,}"
    collect beta-tau "$runs/beta-tau"
fi

if wanted forms; then
    step "forms: ${forms[*]}; equal $equal"
    if form heads && [ ! -e "$models/heads.pt" ]; then
        train_heads "$data" "$verifier" "$models/heads" "${HEADS_K:-8}" --frozen-base \
            --disable-validation --lr 1e-3 "${schedule[@]}" "${budget[@]}"
        newest_mean "$models/heads"
    fi
    if form nat-plain; then
        equal_nat "$data" "$verifier" "$models/nat-plain" "$k" --glancing-start 0 --glancing-end 0
    fi
    if form nat-wide; then
        [ -e "$models/wide.pt" ] || "$python" "$root/data_scripts/grow_model.py" "$verifier" \
            --width 2 --noise 0.01 --output "$models/wide.pt"
        equal_nat "$data" "$models/wide.pt" "$models/nat-wide" "$k"
    fi
    if form ours && [ ! -e "$models/ours.pt" ]; then
        train_our_drafter "$output/greedy/bin" "$verifier" "$models/ours" \
            --lr-scheduler tri_stage --warmup-steps 200 --hold-steps "${HOLD_OURS:-1300}" \
            --decay-steps "${DECAY_OURS:-1000}" --final-lr-scale 0.05 "${budget[@]}"
        newest_mean "$models/ours"
    fi

    found=()
    if form heads; then
        for accept in exact top-3 top-5; do
            beta=${accept#top-} options=()
            [ $accept = exact ] || options=(--acceptance top-k --top-beta "$beta")
            bench "heads-$accept" "$verifier" test --heads-path "$models/heads.pt" --draft-rows 0 \
                --methods "fairseq beam 5,greedy,blockwise" ${options[@]+"${options[@]}"}
        done
        labels="drafter=heads;$(trained "$models/heads")"
        found=("$runs/heads-exact||greedy" "$runs/heads-exact|$labels|blockwise -> specdec"
            "$runs/heads-top-3|$labels|blockwise -> β=3"
            "$runs/heads-top-5|$labels|blockwise -> β=5")
    fi
    for form in nat-plain nat-base nat-wide ours; do
        form "$form" || continue
        [ ${#found[@]} -gt 0 ] || found=("$runs/form-$form||greedy")
        bench "form-$form" "$verifier" test --drafter-path "$models/$form.pt" "${always[@]}" \
            --methods "fairseq beam 5,greedy,specdec++" --sweep beta-tau --betas 1,3,5 --tolerances 1,3
        found+=("$runs/form-$form|drafter=$form;$(trained "$models/$form")|specdec++, β=1 -> specdec;specdec++, β=3, τ=1 -> β=3 τ=1;specdec++, β=5, τ=3 -> β=5 τ=3")
    done
    collect forms "${found[@]}"
fi

if wanted ensemble; then
    step "ensemble: teachers of several seeds"
    read -r -a seeds <<<"${SEEDS:-2 3}"
    teachers=$teacher
    for seed in "${seeds[@]}"; do
        small_shape "$layers" "$layers"
        train_translator "$output/data/bin" "$models/teacher$seed" "${UPDATES_TEACHER:-3122}" "$seed"
        teachers+=:$models/teacher$seed.pt
    done
    distil "$output/data" "$teachers" "$output/data/pieces/train" "$output/ensemble"
    small_shape "$layers" "$layers"
    train_on_distilled "$output/ensemble/bin" "$teacher" "$models/ensemble" "${UPDATES_VERIFIER:-852}"
    equal_nat "$output/ensemble/bin" "$models/ensemble.pt" "$models/nat-ensemble" "$k"
    bench teacher "$teacher" test --methods "fairseq beam 5"
    bench teachers "$teachers" test --methods "fairseq beam 5"
    bench_pair main "$verifier" "$drafter"
    bench_pair ensemble "$models/ensemble.pt" "$models/nat-ensemble.pt"
    pair_of main "teachers=1;model=verifier"
    found=("$runs/teacher|teachers=1;model=teacher" "${pair[@]}")
    count=$((1 + ${#seeds[@]}))
    pair_of ensemble "teachers=$count;model=verifier"
    collect ensemble "${found[@]}" "$runs/teachers|teachers=$count;model=teacher" "${pair[@]}"
fi

if wanted deep; then
    step "deep: ${deep[0]} encoder layers and ${deep[1]} decoder layers, of verifier and drafter"
    # Deep post-norm encoders do not learn with these few updates.
    small_shape "${deep[@]}"
    train_translator "$data" "$models/deep" "${UPDATES_DEEP:-3122}" 1 \
        --encoder-normalize-before --decoder-normalize-before
    equal_nat "$data" "$models/deep.pt" "$models/nat-deep" "$k"
    bench_pair main "$verifier" "$drafter"
    bench_pair deep "$models/deep.pt" "$models/nat-deep.pt"
    pair_of main "layers=$layers-$layers"
    found=("${pair[@]}")
    pair_of deep "layers=${deep[0]}-${deep[1]}"
    collect deep "${found[@]}" "${pair[@]}"
fi

if wanted batch; then
    step "batch: time and memory by batch size"
    batches=${BATCHES:-1 4 8 16 32}
    bench batch "$verifier" test --drafter-path "$drafter" "${always[@]}" \
        --methods "fairseq beam 5,greedy,specdec,specdec++" --top-beta 5 --tolerance 3 \
        --sweep batch --batch-sizes "${batches// /,}"
    collect batch "$runs/batch"
fi

# --- blockwise (Stern et al., 2018, Table 1) --------------------------------------------

# Heads of a cell of the table, FOLDER.pt.
train_cell() {  # BIN BASE FOLDER K OPTIONS
    [ ! -e "$3.pt" ] || return 0
    train_heads "$@" --disable-validation --lr-scheduler polynomial_decay \
        --warmup-updates $((updates / 8)) --total-num-update "$updates" --max-update "$updates"
    keep_last "$3"
}

blockwise() {  # NAME MODEL OPTIONS
    bench "$1" "$2" valid --draft-rows 0 --methods "greedy,blockwise" "${@:3}"
}

if wanted blockwise; then
    updates=${UPDATES_HEADS:-900}
    read -r -a sizes <<<"${HEADS:-2 4 6 8 10}"
    read -r -a least <<<"${LEAST:-2 3}"
    found=()
    for size in "${sizes[@]}"; do
        for kind in regular distilled; do
            step "blockwise: $kind, k=$size, and the same fine-tuned"
            bin=$output/data/bin base=$teacher tuned=fine-tuned
            [ $kind = regular ] || { bin=$data; base=$verifier; tuned=both; }
            frozen=$models/$kind$size
            train_cell "$bin" "$base" "$frozen" "$size" --frozen-base --lr 2e-3
            # Beside heads that predict nothing yet, the model would forget what it knows.
            train_cell "$bin" "$base" "$models/$tuned$size" "$size" --heads-path "$frozen.pt" --lr 3e-4
            blockwise "$kind$size" "$base" --heads-path "$frozen.pt"
            blockwise "$tuned$size" "$models/$tuned$size.pt"
            [ "$size" != "${sizes[0]}" ] || found+=("$runs/$kind$size|k=1;setting=$kind|greedy")
            found+=("$runs/$kind$size|k=$size;setting=$kind|blockwise"
                "$runs/$tuned$size|k=$size;setting=$tuned|blockwise")
        done
        both=$models/both$size.pt
        for beta in 2 3; do
            blockwise "top$beta-$size" "$both" --acceptance top-k --top-beta $beta
            found+=("$runs/top$beta-$size|k=$size;setting=both, top-$beta|blockwise")
        done
        for block in "${least[@]}"; do
            [ "$block" -le "$size" ] || continue
            blockwise "least$block-$size" "$both" --min-block "$block"
            found+=("$runs/least$block-$size|k=$size;setting=both, ℓ = $block|blockwise")
        done
    done
    collect blockwise "${found[@]}"
fi

# --- Jacobi (Santilli et al., 2023, Table 1) --------------------------------------------

# The test set whose targets are the model's greedy output, so that its length is known.
known_lengths() {
    local folder=$output/known
    [ ! -e "$folder/bin/dict.$tgt.txt" ] || return 0
    mkdir -p "$folder"
    fairseq-generate "$data" -s "$src" -t "$tgt" --user-dir "$plugin" --task specdec_translation \
        --path "$verifier" --beam 1 --decoding greedy --max-len-b "$max_len" --batch-size 32 \
        --required-batch-size-multiple 1 ${device:+"$device"} >"$folder/test.log"
    hypotheses "$folder/test"
    mv "$folder/test.hyp" "$folder/test.$tgt"
    cp "$output/data/pieces/test.$src" "$folder/test.$src"
    binarise_test "$data" "$folder"
}

if wanted jacobi; then
    step "jacobi: PJ, PGJ and HGJ as in the paper, the length known to the first two"
    known_lengths
    read -r -a blocks <<<"${BLOCKS:-3 5}"
    paper=(--jacobi-window block --jacobi-init pad --jacobi-pool 0 --jacobi-known-length)
    found=()
    for size in "${blocks[@]}"; do
        others_first="gs-jacobi,hybrid-jacobi"
        [ "$size" != "${blocks[0]}" ] || others_first="fairseq beam 5,jacobi,$others_first"
        data=$output/known/bin bench "jacobi$size" "$verifier" test "${paper[@]}" --draft-rows 0 \
            --block-size "$size" --methods "fairseq beam 1,greedy,$others_first"
        if [ "$size" = "${blocks[0]}" ]; then
            found+=("$runs/jacobi$size||fairseq beam 5;fairseq beam 1;greedy;jacobi")
        fi
        found+=("$runs/jacobi$size|b=$size|gs-jacobi;hybrid-jacobi")
    done
    collect jacobi "${found[@]}"
fi

# --- clusters (Amer et al., 2022, Figure 2) ---------------------------------------------

# All pairs turned round: text/LANG/train.src is in LANG, and train.tgt in the common language.
turn_round() {
    local pair language split
    for pair in "$corpus" "${others[@]}"; do
        language=$tgt
        [ "$pair" = "$corpus" ] || language=$(basename "$pair") language=${language#"$src-"}
        languages+=("$language")
        mkdir -p "$many/text/$language"
        for split in train dev; do
            keep_output "$many/text/$language/$split.src" side "$pair/$split.$language"
            keep_output "$many/text/$language/$split.tgt" side "$pair/$split.$src"
        done
    done
    mkdir -p "$many/text/all"
    for split in train dev; do
        for side in src tgt; do
            keep_output "$many/text/all/$split.$side" joined "$split.$side"
        done
    done
}
joined() { local each; for each in "${languages[@]}"; do cat "$many/text/$each/$1"; done; }
side() { if [ -e "$1" ]; then cat "$1"; else text_lines "$1.gz"; fi; }

states() {  # LANGUAGE FILE CLUSTERS OPTIONS
    [ ! -e "$2" ] || return 0
    specdec-cluster-vocab "$many/data/$1/bin" -s src -t tgt --user-dir "$plugin" \
        --path "$many/model.pt" --gen-subset train --max-tokens 4000 ${device:+"$device"} \
        --states "${STATES:-300000}" --states-dir "$many/states/$1" --clusters "$3" --top-k 1 \
        --neighbours 1 --output "$2" "${@:4}"
}

if wanted clusters; then
    step "clusters: a model from several languages into $src"
    many=$output/many languages=()
    mkdir -p "$many/clusters" "$many/states"
    turn_round
    "$python" "$root/data_scripts/prepare_subwords.py" -s src -t tgt --size "${SIZE_MANY:-16000}" \
        --output "$many/data/all" --train "$many/text/all/train" --valid "$many/text/all/dev"
    for language in "${languages[@]}"; do
        "$python" "$root/data_scripts/prepare_subwords.py" -s src -t tgt \
            --output "$many/data/$language" --train "$many/text/$language/train" \
            --valid "$many/text/$language/dev" --subword-model "$many/data/all/spm.model" \
            --dictionary "$many/data/all/bin/dict.src.txt"
    done
    small_shape "$layers" "$layers"
    train_translator "$many/data/all/bin" "$many/model" "${UPDATES_MANY:-6400}" 1
    more=()
    for language in "${languages[@]:1}"; do
        states "$language" "$many/clusters/$language.pt" 1
        more+=("$many/states/$language")
    done
    found=()
    read -r -a counts <<<"${CLUSTERS:-100 200 300 400 500}"
    for count in "${counts[@]}"; do
        states "$tgt" "$many/clusters/both-$count.pt" "$count"
        states "$tgt" "$many/clusters/target-$count.pt" "$count" --more-states "${more[@]}"
        found+=("source and target=$many/clusters/both-$count.pt"
            "target=$many/clusters/target-$count.pt")
    done
    "$python" "$root/data_scripts/active_tokens.py" "$results/clusters.json" "${origin[@]}" \
        --figure "$results/clusters.png" "${found[@]}"
fi
