#!/usr/bin/env bash
# Builds Debian packages of what install.sh installs, in target/debian:
#   weldfs             all of it but the next four; packed by cargo-deb as integrations/cli/Cargo.toml says
#   weldfs-rocksdb     RocksDB's plug-in
#   weldfs-leveldb     LevelDB's Env
#   weldfs-fio         fio's engine
#   weldfs-engines     what `weldfs bench engines` drives RocksDB, LevelDB and SQLite with
#
#   packaging/build-deb.sh [--all | --no-build]
#
#   --all         all five or none; without it, what this machine cannot build is left out, and a line says so
#   --no-build    pack the release that is built already
#
# The four are packages of their own, so that weldfs needs no engine; each is for the engines' versions of the machine
# it was built on. cargo-deb is taken from PATH, or built once into target/tools (a minute).
set -euo pipefail
cd "$(dirname "$0")/.."
engines=(rocksdb leveldb fio engines)
options=()
case ${1:-} in
"") ;;
--all) for part in program library sqlite "${engines[@]}" docs; do options+=(--only "$part"); done ;;
--no-build) options=(--no-build) ;;
-h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0" && exit 0 ;;
*) echo "build-deb.sh: unknown argument $1 (see --help)" >&2 && exit 2 ;;
esac
command -v dpkg-shlibdeps >/dev/null || { echo "build-deb.sh: dpkg-shlibdeps is missing (package dpkg-dev)" >&2; exit 1; }

export PATH=$PATH:$PWD/target/tools/bin
if ! command -v cargo-deb >/dev/null; then
    echo "build-deb.sh: building cargo-deb into target/tools" >&2
    # A debug build packs as well, in a quarter of the time; gzip is what every dpkg reads.
    cargo install cargo-deb --version 3.8.0 --locked --debug --no-default-features --features gzip --quiet \
        --root target/tools --target-dir target/tools/build
    rm -rf target/tools/build
fi

all=$PWD/target/deb-root libraries=lib/x86_64-linux-gnu
rm -rf target/deb-root target/deb-engines target/debian/weldfs*.deb
./install.sh "${options[@]}" --strip --destdir "$all" --prefix /usr --libdir "$libraries"
# Which part a file is of stands in the list of what was installed; then dpkg has its own.
for engine in "${engines[@]}"; do
    sed -n "s/^$engine file //p" "$all/usr/share/weldfs/installed" | while IFS= read -r file; do
        install -d "target/deb-engines/$engine/usr/${file%/*}"
        mv "$all/usr/$file" "target/deb-engines/$engine/usr/$file"
    done
done
rm "$all/usr/share/weldfs/installed"
mv "$all/usr/share/zsh/site-functions" "$all/usr/share/zsh/vendor-completions"
find "$all" -type d -empty -delete
cargo deb --package weldfs-cli --no-build --no-strip --fast --quiet --output target/debian/

deb=$(echo target/debian/weldfs_*.deb)
field() { dpkg-deb --field "$deb" "$1"; }
# Of libraries and programs, by what their packages say; libweldfs is in no package that is installed here.
depends() { # engine, its library or programs
    local work
    work=$(mktemp -d) && mkdir "$work/debian" && printf 'Source: weldfs\n\nPackage: weldfs-%s\nArchitecture: any\n' "$1" >"$work/debian/control"
    shift
    (cd "$work" && dpkg-shlibdeps -O --ignore-missing-info --warnings=0 "-l$all/usr/$libraries" "${@/#/-e}" 2>"$work/said") |
        sed -n 's/^shlibs:Depends=//p' || { cat "$work/said" >&2; return 1; }
    rm -r "$work"
}
about() { # engine: section, what it is used with, and the description
    case $1 in
    rocksdb) printf '%s\n' database "Recommends: rocksdb-tools, librocksdb-dev" \
        "RocksDB's databases inside a WeldFS storage device" \
        "A FileSystem for RocksDB, named weldfs://IMAGE: a library that is preloaded into" \
        "stock programs or linked, its header, and the sources for a RocksDB's own build." ;;
    leveldb) printf '%s\n' libdevel "Recommends: libleveldb-dev, g++, pkg-config" \
        "LevelDB's databases inside a WeldFS storage device" \
        "An Env for LevelDB whose files lie in a device: the library, shared and static," \
        "with its header and pkg-config file." ;;
    fio) printf '%s\n' utils "Enhances: fio" \
        "measures a WeldFS storage device with fio" \
        "An engine for fio that makes its reads, writes, syncs and trims commands of a" \
        "device, and job files. It fits one version of fio." ;;
    engines) printf '%s\n' utils "Enhances: weldfs" \
        "measures storage engines on a WeldFS storage device" \
        "The programs with which \`weldfs bench engines\` runs workloads of RocksDB, LevelDB" \
        "and SQLite on a device and on file systems of the host." ;;
    esac
}
pack() { # engine
    local stage=$PWD/target/deb-engines/$1 needs text files
    mapfile -t files < <(find "$stage" \( -name 'libweldfs_*.so*' -o -name 'weldfs-drive-*' \) -type f | sort)
    needs="weldfs (= $(field Version)), $(depends "$1" "${files[@]}")"
    # fio's structures change with its version.
    if [[ $1 == fio ]]; then
        local fio
        # shellcheck disable=SC2016 # dpkg-query's
        fio=$(dpkg-query -W -f '${source:Upstream-Version}' fio)
        needs+=", fio (>= $fio), fio (<< $fio.1~)"
    fi
    mapfile -t text < <(about "$1")
    mkdir -p "$stage/DEBIAN" "$stage/usr/share/doc"
    ln -s weldfs "$stage/usr/share/doc/weldfs-$1"
    cp packaging/debian/triggers "$stage/DEBIAN/triggers"
    (cd "$stage" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
    {
        printf 'Package: weldfs-%s\nSource: weldfs\n' "$1"
        printf '%s: %s\n' Version "$(field Version)" Architecture "$(field Architecture)" Maintainer "$(field Maintainer)"
        printf 'Installed-Size: %s\nDepends: %s\n%s\n' "$(du -sk --apparent-size "$stage/usr" | cut -f1)" "$needs" "${text[1]}"
        printf 'Section: %s\nPriority: optional\nDescription: %s\n' "${text[0]}" "${text[2]}"
        printf ' %s\n' "${text[@]:3}"
    } >"$stage/DEBIAN/control"
    chmod -R u=rwX,go=rX "$stage"
    dpkg-deb --build --root-owner-group -Zxz "$stage" target/debian/ >/dev/null
    echo "target/debian/weldfs-$1_$(field Version)_$(field Architecture).deb"
}
for engine in "${engines[@]}"; do
    [[ ! -d target/deb-engines/$engine ]] || pack "$engine"
done
