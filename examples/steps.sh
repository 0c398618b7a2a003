# What the examples' run.sh have in common; they read it with `.`.

fail() {
    echo "run.sh: $1" >&2
    exit 1
}

step() { printf '\n== %s\n' "$1"; }

# PyTorch on a CPU frees and asks for its large buffers at every step; glibc would hand them
# back to the system each time, and a quarter of the training time would go to page faults.
# fairseq's thread that fills a buffer of batches may still run when training has ended, and then
# the interpreter, which stops threads as it ends, now and then aborts: so there is no buffer.
fairseq_train() {
    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 fairseq-train --data-buffer-size 0 "$@"
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

# How many lines of the second file are those of the first.
same_lines() {  # FILE FILE
    LC_ALL=C awk 'NR == FNR { line[FNR] = $0 "" } NR != FNR && line[FNR] == $0 "" { same++ }
        END { print same + 0 " of " FNR }' "$1" "$2"
}

# The mean of the checkpoints that training kept in FOLDER, as FILE; of the last one if none has
# a number of updates.
average_checkpoints() {  # FOLDER FILE
    local saved
    saved=$(compgen -G "$1/checkpoint_*_*.pt") || saved=$1/checkpoint_last.pt
    mapfile -t saved <<<"$saved"
    specdec-average-checkpoints --inputs "${saved[@]}" --output "$2" --half
}

# A command whose output appears as FILE when it is whole; nothing is done if it is there.
keep_output() {  # FILE COMMAND
    [ ! -e "$1" ] || return 0
    mkdir -p "$(dirname "$1")"
    "${@:2}" >"$1.tmp"
    mv "$1.tmp" "$1"
}
