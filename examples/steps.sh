# What the examples' run.sh have in common; they read it with `.`.

fail() {
    echo "run.sh: $1" >&2
    exit 1
}

step() { printf '\n== %s\n' "$1"; }

# A command as the user gave it: with those of the variables that are set before it.
command_line() {  # COMMAND VARIABLES
    local each line=""
    for each in "${@:2}"; do
        [ -z "${!each+set}" ] || line+="$each='${!each#"$root/"}' "
    done
    printf '%s' "$line$1"
}

# PyTorch on a CPU frees and asks for its large buffers at every step; glibc would hand them
# back to the system each time, and a quarter of the training time would go to page faults.
# fairseq's thread that fills a buffer of batches may still run when training has ended, and then
# the interpreter, which stops threads as it ends, now and then aborts: so there is no buffer.
# Several processes, as the variable PROCESSES of the user tells, share each update. They wait for
# one another once an update; threads of one process wait after each product.
fairseq_train() {
    local run=(fairseq-train)
    # fairseq takes the rank of torchrun for the number of a GPU, unless it is told.
    [ "${PROCESSES:-1}" = 1 ] || run=(torchrun --standalone --nproc-per-node "$PROCESSES" --no-python
        bash -c 'exec fairseq-train --distributed-rank "$RANK" "$@"' fairseq-train
        --distributed-no-spawn --distributed-init-method env:// --distributed-backend gloo
        --distributed-world-size "$PROCESSES" --ddp-backend legacy_ddp)
    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 "${run[@]}" --data-buffer-size 0 "$@"
}

# The lines that fairseq-generate printed as FILE.log, in the order of the input, as FILE.hyp,
# which appears when it is whole.
hypotheses() {  # FILE
    LC_ALL=C sed -n 's/^D-//p' "$1.log" | LC_ALL=C sort -n | cut -f 3- >"$1.tmp"
    mv "$1.tmp" "$1.hyp"
}

# The decoding flags of a name as fairseq-beam-5, input-guided or input-guided-ngram, as ${flags[@]}.
decoding_flags() {  # NAME
    case $1 in
        fairseq-beam-*) flags=(--task translation --beam "${1#fairseq-beam-}") ;;
        beam-*) flags=(--task specdec_translation --decoding beam --beam "${1#beam-}") ;;
        input-guided*) flags=(--task specdec_translation --beam 1 --decoding input-guided) ;;
        *) flags=(--task specdec_translation --beam 1 --decoding "$1") ;;
    esac
    case $1 in *-ngram) flags+=(--fallback ngram) ;; esac
}

# Decodes the test set of BIN with MODEL, one sentence at a time unless the flags tell another
# --batch-size; FILE.hyp has a line for every line. $device may be --cpu.
decode() {  # BIN MODEL FILE FLAGS
    [ ! -e "$3.hyp" ] || return 0
    mkdir -p "$(dirname "$3")"
    fairseq-generate "$1" --user-dir "$plugin" --path "$2" --batch-size 1 \
        --required-batch-size-multiple 1 --post-process sentencepiece \
        ${device:+"$device"} "${@:4}" >"$3.log"
    hypotheses "$3"
}

# The text FOLDER/test, in pieces, with the dictionaries of BIN, as FOLDER/bin. $src and $tgt are
# variables of the caller.
binarise_test() {  # BIN FOLDER
    rm -rf "$2/bin.tmp"
    fairseq-preprocess -s "$src" -t "$tgt" --srcdict "$1/dict.$src.txt" \
        --tgtdict "$1/dict.$tgt.txt" --testpref "$2/test" --destdir "$2/bin.tmp"
    mv "$2/bin.tmp" "$2/bin"
}

# How many lines of the second file are those of the first.
same_lines() {  # FILE FILE
    LC_ALL=C awk 'NR == FNR { line[FNR] = $0 "" } NR != FNR && line[FNR] == $0 "" { same++ }
        END { print same + 0 " of " FNR }' "$1" "$2"
}

# The mean of the checkpoints that training kept in FOLDER, or of the newest so many, as FILE; of
# the last one if none has a number of updates.
average_checkpoints() {  # FOLDER FILE [COUNT]
    local saved=("$1"/checkpoint_*_*.pt)  # FOLDER may have brackets, which are no pattern
    [ -e "${saved[0]}" ] || saved=("$1/checkpoint_last.pt")
    mapfile -t saved < <(printf '%s\n' "${saved[@]}" | sort -V | tail -n "${3:-1000}")
    specdec-average-checkpoints --inputs "${saved[@]}" --output "$2" --half
}

# The last checkpoint of a training in FOLDER, as FOLDER.pt.
keep_last() {  # FOLDER
    specdec-average-checkpoints --inputs "$1/checkpoint_last.pt" --output "$1.pt" --half
}

# A command whose output appears as FILE when it is whole; nothing is done if it is there.
keep_output() {  # FILE COMMAND
    [ ! -e "$1" ] || return 0
    mkdir -p "$(dirname "$1")"
    "${@:2}" >"$1.tmp"
    mv "$1.tmp" "$1"
}

# The small Transformer as ${small[@]}: all embeddings shared, sinusoidal positions.
small_shape() {  # ENCODER_LAYERS DECODER_LAYERS [DIM]
    local dim=${3:-${DIM:-256}}
    small=(--share-all-embeddings
        --encoder-layers "$1" --encoder-embed-dim "$dim" --encoder-ffn-embed-dim $((4 * dim))
        --encoder-attention-heads 4 --decoder-layers "$2" --decoder-embed-dim "$dim"
        --decoder-ffn-embed-dim $((4 * dim)) --decoder-attention-heads 4)
}

# What the trainings of the small Transformer have in common, as ${small_training[@]}.
small_training() {
    small_training=(--user-dir "$plugin" --optimizer adam --adam-betas '(0.9, 0.98)'
        --num-workers 0 --save-interval-updates 200 --keep-interval-updates 10
        --no-epoch-checkpoints --log-format simple --log-interval 20 ${device:+"$device"})
    [ -z "$device" ] || small_training+=(--cpu-autocast bfloat16)
}

# A translator from scratch, FOLDER.pt: the mean of the last three checkpoints.
train_translator() {  # BIN FOLDER UPDATES SEED OPTIONS
    [ ! -e "$2.pt" ] || return 0
    fairseq_train "$1" --task specdec_translation --arch transformer "${small[@]}" \
        "${small_training[@]}" --seed "$4" --dropout 0.1 \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
        --lr 2e-3 --lr-scheduler inverse_sqrt --warmup-updates 800 --max-tokens 4096 \
        --max-update "$3" --save-dir "$2" "${@:5}"
    average_checkpoints "$2" "$2.pt" 3
}

# A translator that is trained on with the output of its teacher, FOLDER.pt.
train_on_distilled() {  # BIN TEACHER FOLDER UPDATES
    [ ! -e "$3.pt" ] || return 0
    fairseq_train "$1" --task specdec_translation --arch transformer "${small[@]}" \
        "${small_training[@]}" --seed 1 --dropout 0.1 --finetune-from-model "$2" \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
        --lr 7e-4 --lr-scheduler polynomial_decay --warmup-updates 100 \
        --total-num-update "$4" --max-update "$4" --max-tokens 4096 --save-dir "$3"
    keep_last "$3"
}

# The output of TEACHER (or a.pt:b.pt) for the training text of DATA, OUTPUT/bin; DATA is of
# prepare_subwords.py. $root, $src, $tgt and $python are variables of the caller.
distil() {  # DATA TEACHER PIECES OUTPUT OPTIONS
    [ ! -e "$4/bin/dict.$tgt.txt" ] || return 0
    PYTHON=$python "$root/data_scripts/distill.sh" -d "$1/bin" -p "$2" -x "$3" \
        -v "$1/pieces/valid" -e "$1/pieces/test" -s "$src" -t "$tgt" -o "$4" \
        -n "${SHARDS:-8}" -j "${JOBS:-1}" -- "${@:5}" ${device:+"$device"}
}

# A task other than translation: what follows _translation in its name, and its options.
kind="" of_task=()

# Trains our drafter for VERIFIER: decoder layers over the verifier's encoder, and a chain head.
train_our_drafter() {  # BIN VERIFIER FOLDER OPTIONS: those of the learning rate, and when to end
    local form=(--decoder-layers 2 --block-size 10 --prefix-attention causal --share-encoder
        --chain-units 512) flags
    flags=$(specdec-init-drafter "$1" -s "$src" -t "$tgt" --task "specdec_translation$kind" \
        ${of_task[@]+"${of_task[@]}"} --verifier "$2" --output "$3.init.pt" "${form[@]}" | tail -n 1)
    read -r -a flags <<<"$flags"
    fairseq_train "$1" -s "$src" -t "$tgt" --task "block_nat_translation$kind" \
        ${of_task[@]+"${of_task[@]}"} "${flags[@]}" --verifier-path "$2" --teacher-path "$2" \
        --teacher-weight 0.5 --finetune-from-model "$3.init.pt" "${small_training[@]}" --seed 1 \
        --dropout 0 --criterion glancing_block_loss --block-rate 0.25 --position-decay 0.8 \
        --glancing-start 0 --glancing-end 0 \
        --best-checkpoint-metric accepted --maximize-best-checkpoint-metric \
        --lr 1e-3 --max-tokens 2048 --save-dir "$3" "${@:4}"
}

# A small BART (Lewis et al., 2020) as ${shape[@]}: learned positions, layer norms behind the
# embeddings, GELU. DIM, LAYERS and POSITIONS are variables of the user.
bart_shape() {
    local dim=${DIM:-256} layers=${LAYERS:-3} positions=${POSITIONS:-512}
    shape=(--arch bart_base --encoder-layers "$layers" --decoder-layers "$layers"
        --encoder-embed-dim "$dim" --encoder-ffn-embed-dim $((4 * dim))
        --decoder-embed-dim "$dim" --decoder-ffn-embed-dim $((4 * dim))
        --encoder-attention-heads 4 --decoder-attention-heads 4
        --max-source-positions "$positions" --max-target-positions "$positions")
}

# What the trainings of a BART have in common.
bart_training=(--optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0
    --lr-scheduler inverse_sqrt --save-interval-updates 200 --keep-interval-updates 4
    --no-epoch-checkpoints --ignore-unused-valid-subsets --log-format simple --log-interval 20
    --num-workers 0 --required-batch-size-multiple 1 --seed 1)

# Pre-training by denoising: spans of pieces become <mask>, and sentences are shuffled. BIN is of
# prepare_subwords.py, and its two sides, src and tgt, are one text. The model is FOLDER.pt.
denoise() {  # BIN FOLDER UPDATES LR [START]
    [ ! -e "$2.pt" ] || return 0
    mkdir -p "$2/data"
    local split part bin
    bin=$(cd "$1" && pwd)
    for split in train valid; do
        for part in bin idx; do
            ln -sf "$bin/$split.src-tgt.src.$part" "$2/data/$split.$part"
        done
    done
    cp "$1/dict.src.txt" "$2/data/dict.txt"
    fairseq_train "$2/data" --user-dir "$plugin" --task denoising "${shape[@]}" \
        "${bart_training[@]}" ${device:+"$device"} ${5:+--finetune-from-model "$5"} \
        --criterion projected_cross_entropy --dropout 0.1 \
        --mask 0.3 --mask-length span-poisson --poisson-lambda 3 --replace-length 1 --rotate 0 \
        --permute-sentences 1 --sample-break-mode complete --shorten-method truncate \
        --tokens-per-sample $((${POSITIONS:-512} - 2)) \
        --lr "$4" --warmup-updates 500 --max-update "$3" --max-tokens "${MAX_TOKENS:-4096}" \
        --save-dir "$2"
    average_checkpoints "$2" "$2.pt"
}

# Fine-tuning for pairs of src and tgt, from START unless it is empty. The model is FOLDER.pt.
tune_bart() {  # BIN FOLDER START UPDATES LR
    [ ! -e "$2.pt" ] || return 0
    fairseq_train "$1" -s src -t tgt --user-dir "$plugin" --task specdec_translation \
        "${shape[@]}" "${bart_training[@]}" ${device:+"$device" --cpu-autocast bfloat16} \
        ${3:+--finetune-from-model "$3"} --truncate-source --dropout 0.2 \
        --criterion projected_cross_entropy --label-smoothing 0.1 \
        --lr "$5" --warmup-updates 200 --max-update "$4" --max-tokens "${MAX_TOKENS:-4096}" \
        --save-dir "$2"
    average_checkpoints "$2" "$2.pt"
}

# The lines of files, plain or packed, that are joined with colons.
text_lines() {  # FILES
    local files file
    IFS=: read -r -a files <<<"$1"
    for file in "${files[@]}"; do
        [ -e "$file" ] || fail "$file is not there. Check the name."
        case $file in *.gz) gzip -cd "$file" ;; *) cat "$file" ;; esac
    done
}
