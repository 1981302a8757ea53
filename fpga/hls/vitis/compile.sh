#!/bin/sh
# Compiles kernels for a card with AMD's Vitis: weld_NAME.xo of NAME.cpp.
#
# NOT RUN HERE: this project's machines have no Vitis. It is written by the manuals (UG1393, UG1399), not tested.
#
#     PLATFORM=xilinx_u250_gen3x16_xdma_4_1_202210_1 fpga/hls/vitis/compile.sh FOLDER [NAME...]
set -eu
: "${PLATFORM:?the platform of the card, as platforminfo -l lists it}"
out=${1:?the folder for the objects}
shift
hls=$(cd "$(dirname "$0")/.." && pwd)
[ $# -gt 0 ] || set -- convolve equalise gzip knn relief smith_waterman stencil
mkdir -p "$out"
for name in "$@"; do
    # sim/ is not on the search path: hls_stream.h is that of Vitis.
    v++ --compile --target hw --platform "$PLATFORM" --config "$hls/vitis/compile.cfg" --kernel "weld_$name" \
        -I"$hls" -I"$hls/../include" --output "$out/weld_$name.xo" "$hls/$name.cpp"
done
