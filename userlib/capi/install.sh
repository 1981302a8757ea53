#!/usr/bin/env bash
# Builds and installs the C library: shared and static, the header, the pkg-config file.
#
#   userlib/capi/install.sh --prefix DIR [--profile release|dev]
#
# DIR gets lib/libweldfs.so.MAJOR.MINOR.PATCH with its two links, lib/libweldfs.a, lib/pkgconfig/weldfs.pc and
# include/weldfs.h. A program then builds with: cc prog.c $(PKG_CONFIG_PATH=DIR/lib/pkgconfig pkg-config --cflags
# --libs weldfs), and for the static library with --static and -Wl,-Bstatic,-lweldfs,-Bdynamic (docs/API.md).
set -euo pipefail

prefix="" profile=release
while (($#)); do
    case $1 in
    --prefix) prefix=${2:?--prefix needs a folder} && shift 2 ;;
    --profile) profile=${2:?--profile needs a name} && shift 2 ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) echo "install.sh: unknown argument $1 (see --help)" >&2 && exit 2 ;;
    esac
done
[[ -n $prefix ]] || { echo "install.sh: --prefix DIR is needed" >&2; exit 2; }
mkdir -p "$prefix" && prefix=$(cd "$prefix" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"

cargo build --package weldfs-capi --profile "$profile"
built=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
case $profile in dev) built=$built/debug ;; *) built=$built/$profile ;; esac
number() { sed -n "s/^#define WELDFS_VERSION_$1 \([0-9]*\)$/\1/p" ../include/weldfs.h; }
major=$(number MAJOR) version=$major.$(number MINOR).$(number PATCH)

install -d "$prefix/lib/pkgconfig" "$prefix/include"
install -m 755 "$built/libweldfs_c.so" "$prefix/lib/libweldfs.so.$version"
ln -sf "libweldfs.so.$version" "$prefix/lib/libweldfs.so.$major"
ln -sf "libweldfs.so.$major" "$prefix/lib/libweldfs.so"
install -m 644 ../include/weldfs.h "$prefix/include/weldfs.h"
sed -e "s|@prefix@|$prefix|" -e "s|@version@|$version|" weldfs.pc.in >"$prefix/lib/pkgconfig/weldfs.pc"

# The archive as one object whose only names are weldfs_*: two libraries written in Rust then fit into one program.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ld -r --whole-archive "$built/libweldfs_c.a" -o "$work/weldfs.o"
objcopy --wildcard --keep-global-symbol='weldfs_*' --remove-section=.llvmbc --remove-section=.llvmcmd "$work/weldfs.o"
rm -f "$prefix/lib/libweldfs.a"
ar rcsD "$prefix/lib/libweldfs.a" "$work/weldfs.o"
echo "installed libweldfs $version in $prefix"
