#!/bin/sh
# Links one kernel with two data movers, which have to be given (those of AMD's Vitis examples do), to an xclbin.
#
# NOT RUN HERE: this project's machines have no Vitis. It is written by the manual (UG1393), not tested.
#
#     PLATFORM=... fpga/hls/vitis/link.sh weld_NAME.xo mm2s.xo s2mm.xo NAME.xclbin
#
# The movers' streams must carry the flit of weldfs_flits.h: 512 bits of data, 16 of length, 1 of the packet's end.
set -eu
: "${PLATFORM:?the platform of the card, as platforminfo -l lists it}"
[ $# -eq 4 ] || { echo "link.sh KERNEL.xo MM2S.xo S2MM.xo OUTPUT.xclbin" >&2; exit 2; }
kernel=$(basename "$1" .xo)
v++ --link --target hw --platform "$PLATFORM" \
    --connectivity.nk "$kernel:1:slot" --connectivity.nk mm2s:1:feed --connectivity.nk s2mm:1:drain \
    --connectivity.stream_connect feed.s:slot.in --connectivity.stream_connect slot.out:drain.s \
    --output "$4" "$1" "$2" "$3"
