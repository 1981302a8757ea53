#!/bin/sh
# A durable, checksummed log by `weldfs exec`, one command per record: the line, behind it its CRC-32C.
#
#   log.sh IMAGE-OR-SOCKET append TEXT      prints where the record begins
#   log.sh IMAGE-OR-SOCKET check AT LENGTH  exit 0 when the record there is sound
set -eu
device=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $2 in
append)
    printf %s "$3" >"$work/record"
    weldfs exec "$device" --input RECORD="$work/record" '
        open /log rw create append
        append @RECORD crc32c -> sum at -> where
        append sum
        result where' >"$work/said"
    sed -n 's/^where = \([0-9]*\) .*/\1/p' "$work/said"
    ;;
check)
    weldfs exec "$device" "
        open /log r
        read $3 $4 -> record whole crc32c -> now
        read $(($3 + $4)) 4 -> trailer whole
        load trailer 0 u32le -> then
        if now == then else fail EBADMSG" >"$work/said"
    ;;
*) echo "log.sh: append or check, not $2" >&2 && exit 2 ;;
esac
