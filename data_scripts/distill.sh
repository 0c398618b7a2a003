#!/usr/bin/env bash
# Sequence-level knowledge distillation on one machine: decode all shards, merge,
# filter, binarise with the teacher's dictionaries.  Run it again to resume.
set -euo pipefail

usage() {
    cat <<'END'
usage: distill.sh -d DATA -p TEACHER -x PIECES -s LANG -t LANG -o DIR [options] [-- OPTIONS]

Decode the training source with a teacher in shards, merge them, filter the
pairs, and binarise them with the teacher's dictionaries for fairseq-train.
A killed run resumes when the same command is run again.

  -d DATA     folder with the teacher's dict.LANG.txt files
  -p TEACHER  checkpoint, or a.pt:b.pt for an ensemble
  -x PIECES   prefix of the training pieces (PIECES.LANG, or PIECES.LANG.gz)
  -s, -t      source and target language
  -o DIR      output: shards/, distilled/, filtered/, bin/
  -v PIECES   prefix of validation pieces, binarised as they are
  -e PIECES   prefix of test pieces, binarised as they are
  -n, --shards N   number of shards (default 8); to resume, the same number
  -j, --jobs N     shards decoded at a time (default 1, in Slurm all)
  --launcher NAME  submitit: the shards are a job array of Slurm; local: jobs of
                   submitit on this machine. Without it, they are plain processes
  --partition P, --minutes N, --slurm NAME=VALUE
                   of the jobs; see launch_shards.py --help
  -- OPTIONS  of distill_shard.py, thus of fairseq-generate (--beam 5, --cpu, ...),
              and of decoding: --decoding METHOD (default: beam), --sampling

$PYTHON is the interpreter (default: python).

example:
  data_scripts/distill.sh -d data/bin -p teacher.pt -x data/pieces/train \
      -v data/pieces/valid -s en -t es -o distilled -n 8 -j 2 -- --cpu
  data_scripts/distill.sh -d data/bin -p teacher.pt -x data/pieces/train \
      -s en -t es -o sampled -- --cpu --decoding greedy --sampling --seed 2
  data_scripts/distill.sh -d data/bin -p teacher.pt -x data/pieces/train \
      -s en -t es -o distilled --launcher submitit --partition gpu --shards 200
END
}

fail() {
    echo "distill.sh: $1" >&2
    exit 1
}

data='' teacher='' train='' valid='' test='' source='' target='' output='' shards=8 jobs=''
launcher='' launched=()
while getopts :d:p:x:v:e:s:t:o:n:j:h-: option; do
    if [ "$option" = - ]; then  # --NAME VALUE or --NAME=VALUE
        option=--${OPTARG%%=*}
        case $OPTARG in
            help) ;;
            *=*) OPTARG=${OPTARG#*=} ;;
            *) [ "$OPTIND" -le $# ] || fail "$option needs a value; see distill.sh --help."
                OPTARG=${!OPTIND} OPTIND=$((OPTIND + 1)) ;;
        esac
    fi
    case $option in
        d) data=$OPTARG ;;
        p) teacher=$OPTARG ;;
        x) train=$OPTARG ;;
        v) valid=$OPTARG ;;
        e) test=$OPTARG ;;
        s) source=$OPTARG ;;
        t) target=$OPTARG ;;
        o) output=$OPTARG ;;
        n | --shards) shards=$OPTARG ;;
        j | --jobs) jobs=$OPTARG ;;
        --launcher) launcher=$OPTARG ;;
        --partition | --minutes | --slurm) launched+=("$option" "$OPTARG") ;;
        h | --help) usage; exit ;;
        :) fail "-$OPTARG needs a value; see distill.sh --help." ;;
        \?) fail "unknown option -$OPTARG; see distill.sh --help." ;;
        *) fail "unknown option $option; see distill.sh --help." ;;
    esac
done
shift $((OPTIND - 1))
for name in data teacher train source target output; do
    [ -n "${!name}" ] || fail "the $name is missing; see distill.sh --help."
done
case $shards$jobs in *[!0-9]*) fail "-n and -j take whole numbers." ;; esac
[ "${jobs:-1}" -gt 0 ] || fail "-j takes 1 or more."
[ "${shards:-0}" -gt 0 ] || fail "-n takes 1 or more."
# Bash takes a number that begins with 0 for an octal one.
shards=$((10#$shards)) jobs=${jobs:+$((10#$jobs))}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python}

[ -n "$launcher" ] || [ ${#launched[@]} -eq 0 ] || fail "${launched[0]} needs --launcher."

# Text that is missing or not line-aligned is refused before the decoding.
for text in ${valid:+"$valid"} ${test:+"$test"}; do
    for language in "$source" "$target"; do
        [ -f "$text.$language" ] || fail "file not found: $text.$language. Check -v and -e."
    done
    [ "$(grep -c '' "$text.$source")" = "$(grep -c '' "$text.$target")" ] ||
        fail "$text.$source and $text.$target have different numbers of lines. Make them line-aligned."
done
{ mkdir -p "$output" && [ -w "$output" ]; } 2>/dev/null ||
    fail "$output cannot be written. Choose another -o."
pieces=$train.$source
[ -f "$pieces" ] || [ ! -f "$pieces.gz" ] || pieces=$pieces.gz

decode=("$data" --path "$teacher" -s "$source" -t "$target" --source "$pieces"
    --output-dir "$output/shards" --shards "$shards")
stopped() {  # by its exit status: 125 of xargs, and more than 128 of a shell, is a kill
    [ "$1" -ne 130 ] || fail "it was interrupted. Run the same command again to resume."
    [ "$1" -lt 125 ] || fail "a shard was killed. Run the same command again to resume."
    fail "a shard failed for the reason above. Mend it; what was decoded before is kept."
}
if [ -n "$launcher" ]; then
    echo "== decoding $shards shards, as jobs of submitit"
    "$python" "$here/launch_shards.py" --launcher "$launcher" ${jobs:+--jobs "$jobs"} \
        ${launched[@]+"${launched[@]}"} "${decode[@]}" "$@" || stopped $?
else
    echo "== decoding $shards shards, ${jobs:-1} at a time"
    # Each process loads the teacher once and decodes its part of the shards.
    each=$(((shards + ${jobs:-1} - 1) / ${jobs:-1}))
    seq 0 $((shards - 1)) | xargs -P "${jobs:-1}" -n "$each" \
        "$python" "$here/distill_shard.py" "${decode[@]}" "$@" --shard || stopped $?
fi

"$python" "$here/finish_distillation.py" "$data" --train "$train" -s "$source" -t "$target" \
    --output "$output" ${valid:+--valid "$valid"} ${test:+--test "$test"}
echo "== $output/bin is ready for fairseq-train"
