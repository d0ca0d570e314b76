# Each request is the number of bytes of a script, a newline, and the script.
# Each answer is a line "ended CODE BYTES BYTES", standard output, standard error.
# No single quotes in here: this text stands between two.
dir=$(mktemp -d) || exit
trap "rm -rf \"$dir\"" EXIT
while read -r bytes; do
    script=$(head -c "$bytes") || exit
    /bin/sh -c "$script" </dev/null >"$dir/out" 2>"$dir/err"
    code=$?
    # What the script left running may still write: what is counted is what is sent.
    cp "$dir/out" "$dir/out.ended" && cp "$dir/err" "$dir/err.ended" || exit
    set -- $(stat -c %s "$dir/out.ended" "$dir/err.ended")
    echo "ended $code $1 $2"
    cat "$dir/out.ended" "$dir/err.ended"
done
