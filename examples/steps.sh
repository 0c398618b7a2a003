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
