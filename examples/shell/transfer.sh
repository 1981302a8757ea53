#!/bin/sh
# A fused program by `weldfs exec`: money goes from one file to the other, or nothing happens.
#
#   transfer.sh IMAGE-OR-SOCKET
set -eu
device=$1 programs=$(cd "$(dirname "$0")/../programs" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A number below 256 as 8 bytes, little-endian.
number() { printf "\\$(printf %03o "$1")\\0\\0\\0\\0\\0\\0\\0"; }
account() {
    number "$2" >"$work/balance"
    weldfs exec "$device" "open $1 w create trunc; write 0 @IN; close" --input IN="$work/balance" >"$work/said"
}
balance() { weldfs exec "$device" "open $1 r; read 0 8 -> b; load b 0 u64le -> n; close" | sed -n 's/^n = \([0-9]*\) .*/\1/p'; }

account /alice 100
account /bob 20
for amount in 40 60 80; do
    number "$amount" >"$work/amount"
    if weldfs exec "$device" --file "$programs/transfer.txt" --input AMOUNT="$work/amount" >"$work/said" 2>"$work/why"; then
        echo "$amount: $(sed -n 's/^rest = \([0-9]*\) .*/\1/p' "$work/said") left"
    elif grep -q EDQUOT "$work/said" "$work/why"; then
        echo "$amount: not enough"
    else
        cat "$work/why" >&2
        exit 1
    fi
done
echo "alice $(balance /alice), bob $(balance /bob)"
