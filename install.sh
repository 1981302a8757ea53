#!/usr/bin/env bash
# Builds and installs WeldFS: the program with its preload library, man pages, completions and systemd unit; the C
# library, shared and static, with its header and pkg-config file; what SQLite, RocksDB, LevelDB and fio use a device
# with (docs/ENGINES.md), and what `weldfs bench engines` drives the first three with; the documents.
#
#   ./install.sh [--prefix DIR] [--destdir DIR] [--libdir DIR] [--profile release|dev] [--only PART]...
#                [--strip] [--no-build | --build-only]
#   ./install.sh --uninstall [--prefix DIR] [--destdir DIR]
#
#   --prefix DIR    where it will be used from (default /usr/local); --prefix ~/.local needs no root
#   --destdir DIR   put in front of the prefix while installing, for packagers
#   --libdir DIR    where the libraries go, below the prefix (default lib)
#   --only PART     program, library, sqlite, rocksdb, leveldb, fio, engines or docs; may be given more than once
#                   (default: all)
#   --strip         leave the debug information out
#   --no-build      install what an earlier --build-only (or make) built
#   --uninstall     remove what this script installed there, and nothing else
#
# rocksdb, leveldb, fio and engines need packages of the system to be built, and without --only are left out where one
# is missing; a line says so. With each of them comes the C library. The source of fio, which no package has, is fetched
# by `--only fio` alone; WELDFS_FIO_SOURCE names a configured one that is there. engines are drivers of those engines
# whose packages are there, with SQLite's extension; WELDFS_SQLITE_SOURCE names a folder with the sqlite3.c and the
# sqlite3.h of an SQLite, and then there is a driver with batch atomic writes, too.
#
# PREFIX/share/weldfs/installed lists what was installed; what an older version left and a newer one has no more is
# removed when the newer one is installed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

say() { printf 'install.sh: %s\n' "$*" >&2; }
usage() { say "$1 (see --help)"; exit 2; }

prefix=/usr/local destdir="" libdir=lib profile=release parts=() strip=no build=yes install=yes uninstall=no
while (($#)); do
    case $1 in
    --prefix | --destdir | --libdir | --profile | --only)
        (($# > 1)) && [[ -n $2 ]] || usage "$1 needs a value"
        case $1 in
        --prefix) prefix=$2 ;;
        --destdir) destdir=$2 ;;
        --libdir) libdir=$2 ;;
        --profile) profile=$2 ;;
        --only) parts+=("$2") ;;
        esac
        shift 2
        ;;
    --strip) strip=yes && shift ;;
    --no-build) build=no && shift ;;
    --build-only) install=no && shift ;;
    --uninstall) uninstall=yes && shift ;;
    -h | --help) sed -n '2,27s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) usage "unknown argument $1" ;;
    esac
done
known="program|library|sqlite|rocksdb|leveldb|fio|engines|docs"
chosen=yes # by --only; else a part that cannot be had here is left out
((${#parts[@]})) || { chosen=no && IFS='|' read -ra parts <<<"$known"; }
for part in "${parts[@]}"; do
    [[ $part =~ ^($known)$ ]] || usage "no part is called $part"
done
[[ $libdir != /* && $libdir != *..* ]] || usage "--libdir is a folder below the prefix"
absolute() { case $1 in /*) printf %s "$1" ;; *) printf %s "$PWD/$1" ;; esac; }
prefix=$(absolute "$prefix") && prefix=${prefix%/}
[[ -z $destdir ]] || destdir=$(absolute "$destdir")
root=${destdir%/}$prefix
manifest=$root/share/weldfs/installed

# Lines of the manifest: the part, `file` or `dir`, and the path below the prefix.
entries() { [[ ! -e $manifest ]] || grep -E "^($known) (file|dir) [^/]" "$manifest" | grep -vE '(^| |/)\.\.(/|$)' || true; }

# Files that were installed, then the folders that were made for them, the deepest first, if nothing else is in them.
remove() { # lines of a manifest
    local part kind path
    while read -r part kind path; do
        [[ $kind != file ]] || rm -f -- "$root/$path"
    done <<<"$1"
    while read -r part kind path; do
        [[ $kind != dir ]] || rmdir -- "$root/$path" 2>/dev/null || true
    done < <(sort -r -k3 <<<"$1")
}

if [[ $uninstall == yes ]]; then
    [[ -e $manifest ]] || { say "nothing is installed in $root: $manifest is not there"; exit 1; }
    was=$(entries)
    rm -f -- "$manifest"
    remove "$was"
    echo "removed WeldFS from $root"
    exit 0
fi

has() { [[ " ${parts[*]} " == *" $1 "* ]]; }

# Where cargo puts what it builds.
target() {
    local folder
    if command -v cargo >/dev/null; then
        folder=$(cd "$here" && cargo metadata --no-deps --format-version 1 --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    else
        folder=${CARGO_TARGET_DIR:-$here/target}
    fi
    case $profile in dev) printf %s "$folder/debug" ;; *) printf %s "$folder/$profile" ;; esac
}
built=$(target)
# What is built for the engines, in C and C++, lies apart from what tests build of it.
engines=${built%/*}/engines/${built##*/}
version=$(sed -n 's/^version = "\([0-9.]*\)"$/\1/p' "$here/Cargo.toml" | head -1)

made() { # part: the file of it that shows that it was built
    case $1 in
    rocksdb) printf %s "$engines/rocksdb/libweldfs_rocksdb.so" ;;
    leveldb) printf %s "$engines/leveldb/libweldfs_leveldb.so.$version" ;;
    fio) printf %s "$engines/fio/libweldfs_fio.so" ;;
    engines) printf %s "$engines/engines/drivers" ;;
    esac
}
packages() { # part
    case $1 in
    rocksdb) printf %s "g++, make and librocksdb-dev" ;;
    leveldb) printf %s "g++, make, cmake and libleveldb-dev" ;;
    fio) printf %s "gcc, make, cmake, python3, fio and dpkg-dev" ;;
    engines) printf %s "g++, make, cmake, and librocksdb-dev, libleveldb-dev or libsqlite3-dev" ;;
    esac
}
commands() { local name; for name; do command -v "$name" >/dev/null || return 1; done; }
header() { echo "#include <$1>" | "${CXX:-c++}" -x c++ -std=c++17 -E - >/dev/null 2>&1; }

# The source of the fio of this machine; with --only it is fetched (testing/sources.py), else only one that is there.
fio_source() {
    if [[ -n ${WELDFS_FIO_SOURCE:-} ]]; then
        [[ -e $WELDFS_FIO_SOURCE/config-host.h ]] || { say "$WELDFS_FIO_SOURCE: no source in which ./configure was run"; return 1; }
        (cd "$WELDFS_FIO_SOURCE" && pwd)
    else
        local there=()
        [[ $chosen == yes ]] || there=(--there)
        (cd "$here" && CARGO_TARGET_DIR=${built%/*} python3 -B -m testing.sources "${there[@]}" fio)
    fi
}
# Whether a part can be had: built here, or with --no-build, there.
possible() {
    if [[ $build == no ]]; then
        [[ -e $(made "$1") ]]
        return
    fi
    case $1 in
    rocksdb) commands "${CXX:-c++}" make && header rocksdb/file_system.h ;;
    leveldb) commands "${CXX:-c++}" make cmake && header leveldb/env.h ;;
    fio) commands "${CC:-cc}" make cmake python3 && source=$(fio_source) ;;
    engines)
        commands "${CXX:-c++}" make cmake &&
            { header rocksdb/file_system.h || header leveldb/env.h || header sqlite3.h; }
        ;;
    esac
}
here_too=()
for part in "${parts[@]}"; do
    if [[ $part =~ ^(rocksdb|leveldb|fio|engines)$ ]] && ! possible "$part"; then
        why="it needs the packages $(packages "$part")"
        [[ $build == yes ]] || why="it is not built; for that $why"
        [[ $part != fio || $build == no || $chosen == yes ]] || why+="; --only fio then fetches the source of fio"
        [[ $chosen == no ]] || { say "$part cannot be built: $why"; exit 1; }
        say "$part is left out: $why"
    else
        here_too+=("$part")
    fi
done
parts=("${here_too[@]}")
# What an engine uses is in the C library, of the same version; SQLite's driver loads the extension.
! has engines || has sqlite || parts=(sqlite "${parts[@]}")
! has rocksdb && ! has leveldb && ! has fio && ! has engines || has library || parts=(library "${parts[@]}")

make_rocksdb() {
    make -s -C "$here/integrations/rocksdb" "OUT=$engines/rocksdb" "CARGO_OUT=$built" "RPATH=\$\$ORIGIN"
}
make_cmake() { # part, options
    local type=RelWithDebInfo
    [[ $profile != dev ]] || type=Debug
    # As it is to be installed: it looks for the C library beside itself.
    cmake -S "$here/integrations/$1" -B "$engines/$1" --log-level=WARNING -DCMAKE_BUILD_TYPE="$type" \
        -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DWELDFS_LIBRARY="$built/libweldfs.so" \
        -DWELDFS_INCLUDE="$here/userlib/include" "${@:2}"
    cmake --build "$engines/$1" -- --no-print-directory -s
}

# Leaves a list of what could be built.
make_engines() {
    local folder=$engines/engines engine sqlite=${WELDFS_SQLITE_SOURCE:-}
    [[ -z $sqlite ]] || sqlite=$(absolute "$sqlite")
    make_cmake engines -DSQLITE_AMALGAMATION="$sqlite"
    : >"$folder/drivers"
    for engine in rocksdb leveldb sqlite sqlite-batch; do
        # What an older build left is no target of this one.
        if grep -q "^weldfs-drive-$engine:" "$folder/Makefile"; then
            echo "weldfs-drive-$engine" >>"$folder/drivers"
        elif [[ $engine != sqlite-batch ]]; then
            say "the driver of $engine is left out: it needs the package lib${engine/%sqlite/sqlite3}-dev"
        fi
    done
}

if [[ $build == yes ]]; then
    command -v cargo >/dev/null || { say "a Rust toolchain is needed (rustup.rs); as root after make: --no-build"; exit 1; }
    # Apart: what the C library asks of the others is not the program's business.
    ! has program || (cd "$here" && cargo build --locked --profile "$profile" --package weldfs-cli --package weldfs-preload)
    ! has library || (cd "$here" && cargo build --locked --profile "$profile" --package weldfs-capi)
    ! has sqlite || (cd "$here" && cargo build --locked --profile "$profile" --package weldfs-sqlite)
    ! has rocksdb || make_rocksdb
    ! has leveldb || make_cmake leveldb
    ! has fio || make_cmake fio -DFIO_SOURCE="$source"
    ! has engines || make_engines
fi
[[ $install == yes ]] || exit 0
need() { [[ -e $built/$1 ]] || { say "$built/$1 is not built: run make, or this without --no-build"; exit 1; }; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
current="" # the part that is being installed

folder() { # path below the prefix: made, with what is above it
    [[ -d $root/$1 ]] && return 0
    case $1 in */*) folder "${1%/*}" ;; *) [[ -d $root ]] || install -d "$root" ;; esac
    install -d -m 755 "$root/$1"
    echo "$current dir $1" >>"$work/installed"
}
# What the compiler made goes in with or without its debug information.
slim() { # file, mode, path below the prefix
    cp "$1" "$work/slim"
    [[ $strip == no ]] || strip --strip-unneeded "$work/slim"
    put "$2" "$work/slim" "$3"
}
put() { # mode, file, path below the prefix
    folder "${3%/*}"
    install -m "$1" "$2" "$root/$3"
    echo "$current file $3" >>"$work/installed"
}
link() { # what it points to, path below the prefix
    folder "${2%/*}"
    ln -sfn "$1" "$root/$2"
    echo "$current file $2" >>"$work/installed"
}

part_program() {
    need weldfs && need libweldfs_preload.so
    slim "$built/weldfs" 755 bin/weldfs
    slim "$built/libweldfs_preload.so" 755 lib/weldfs/libweldfs_preload.so
    # Where mount(8) and fsck(8) look, if the prefix is /usr.
    local name
    for name in mount mount.fuse fsck mkfs; do link ../bin/weldfs "sbin/$name.weldfs"; done
    "$built/weldfs" generate man "$work/man"
    for page in "$work"/man/*.1; do put 644 "$page" "share/man/man1/${page##*/}"; done
    completions() { "$built/weldfs" generate completions "$1" >"$work/$1" && put 644 "$work/$1" "$2"; }
    completions bash share/bash-completion/completions/weldfs
    completions zsh share/zsh/site-functions/_weldfs
    completions fish share/fish/vendor_completions.d/weldfs.fish
    local systemd=$here/packaging/systemd unit
    for unit in "$systemd"/*.service; do
        [[ -e $unit ]] || continue
        sed "s|/usr/bin/weldfs|$prefix/bin/weldfs|g" "$unit" >"$work/unit"
        put 644 "$work/unit" "lib/systemd/system/${unit##*/}"
    done
    [[ ! -e $systemd/weldfs.sysusers ]] || put 644 "$systemd/weldfs.sysusers" lib/sysusers.d/weldfs.conf
}

pc() { # template, its name where it is installed
    sed -e "s|@prefix@|$prefix|" -e "s|@libdir@|$libdir|" -e "s|@version@|$version|" "$1" >"$work/pc"
    put 644 "$work/pc" "$libdir/pkgconfig/$2.pc"
}

# An archive as one object whose only names are these: two libraries written in Rust then fit into one program.
archive() { # as it is built, names, as it is installed
    local object=$work/${3%.a}.o
    ld -r --whole-archive "$built/$1" -o "$object"
    objcopy --wildcard --keep-global-symbol="$2" --remove-section=.llvmbc --remove-section=.llvmcmd "$object"
    [[ $strip == no ]] || strip --strip-debug "$object"
    ar rcsD "$work/$3" "$object"
    put 644 "$work/$3" "$libdir/$3"
}

part_library() {
    need libweldfs_c.so && need libweldfs_c.a
    local capi=$here/userlib/capi header=$here/userlib/include/weldfs.h major version
    number() { sed -n "s/^#define WELDFS_VERSION_$1 \([0-9]*\)$/\1/p" "$header"; }
    major=$(number MAJOR) version=$major.$(number MINOR).$(number PATCH)
    slim "$built/libweldfs_c.so" 755 "$libdir/libweldfs.so.$version"
    link "libweldfs.so.$version" "$libdir/libweldfs.so.$major"
    link "libweldfs.so.$major" "$libdir/libweldfs.so"
    archive libweldfs_c.a 'weldfs_*' libweldfs.a
    put 644 "$header" include/weldfs.h
    pc "$capi/weldfs.pc.in" weldfs
}

# Among the libraries: there `.load libweldfs_sqlite` finds it by its name alone, if the linker looks there.
part_sqlite() {
    need libweldfs_sqlite.so && need libweldfs_sqlite.a
    slim "$built/libweldfs_sqlite.so" 755 "$libdir/libweldfs_sqlite.so"
    archive libweldfs_sqlite.a 'weldfs_sqlite_*' libweldfs_sqlite.a
    put 644 "$here/integrations/sqlite/include/weldfs_sqlite.h" include/weldfs_sqlite.h
    pc "$here/integrations/sqlite/weldfs_sqlite.pc.in" weldfs_sqlite
}

# The header where RocksDB's own build puts those of plug-ins, and the sources for such a build.
part_rocksdb() {
    local plugin=$here/integrations/rocksdb/plugin/weldfs file
    slim "$(made rocksdb)" 755 "$libdir/libweldfs_rocksdb.so"
    put 644 "$plugin/weldfs_fs.h" include/rocksdb/plugin/weldfs/weldfs_fs.h
    for file in "$plugin"/*; do put 644 "$file" "share/weldfs/rocksdb/plugin/weldfs/${file##*/}"; done
}

part_leveldb() {
    local from=$here/integrations/leveldb library=libweldfs_leveldb
    slim "$(made leveldb)" 755 "$libdir/$library.so.$version"
    link "$library.so.$version" "$libdir/$library.so.${version%%.*}"
    link "$library.so.${version%%.*}" "$libdir/$library.so"
    slim "$engines/leveldb/$library.a" 644 "$libdir/$library.a"
    put 644 "$from/include/weldfs_leveldb.h" include/weldfs_leveldb.h
    pc "$from/weldfs_leveldb.pc.in" weldfs_leveldb
}

part_fio() {
    local file
    slim "$(made fio)" 755 "$libdir/libweldfs_fio.so"
    for file in "$here"/integrations/fio/jobs/*.fio; do put 644 "$file" "share/weldfs/fio/${file##*/}"; done
}

# Where `weldfs bench engines` looks for them from its own folder.
part_engines() {
    local driver
    while IFS= read -r driver; do
        slim "$engines/engines/$driver" 755 "libexec/weldfs/$driver"
    done <"$(made engines)"
}

part_docs() {
    local name
    for name in README.md CHANGELOG.md SPECIFICATION.md SECURITY.md LICENSE; do
        put 644 "$here/$name" "share/doc/weldfs/$name"
    done
    while IFS= read -r name; do
        put 644 "$here/$name" "share/doc/weldfs/$name"
    done < <(cd "$here" && find docs examples profiles packaging/grafana -type f ! -path '*/target/*' ! -path '*/__pycache__/*' ! -name '.*' 2>/dev/null | sort)
}

install -d "$root" 2>/dev/null && [[ -w $root ]] || { say "cannot write to $root: be root, or choose --prefix ~/.local"; exit 1; }
: >"$work/installed"
for current in "${parts[@]}"; do "part_$current"; done

# What an older installation of these parts had and this one has not; what it had of the other parts stays listed.
these="^($(IFS='|' && echo "${parts[*]}")) "
older=$(entries)
gone=$(grep -E "$these" <<<"$older" | grep -vxFf "$work/installed" | grep -E '^[a-z]+ file ' || true)
[[ -z $gone ]] || remove "$gone"
{ cat "$work/installed" && grep -vE "$these" <<<"$older" && true; grep -E "$these" <<<"$older" | grep -E '^[a-z]+ dir ' || true; } |
    grep -v '^$' | sort -u >"$work/manifest"
current=program && folder share/weldfs && sort -u "$work/manifest" "$work/installed" >"$work/all"
install -m 644 "$work/all" "$manifest"

# What the system keeps of these folders: the linker's cache, the units and their user.
if [[ -z $destdir && $EUID == 0 && ($prefix == /usr || $prefix == /usr/local) ]]; then
    ldconfig || true
    if has program && [[ -d /run/systemd/system && -e $root/lib/sysusers.d/weldfs.conf ]]; then
        systemd-sysusers "$root/lib/sysusers.d/weldfs.conf" || say "make the user weldfs: systemd-sysusers failed"
        systemctl daemon-reload || true
    fi
fi
echo "installed WeldFS ($(IFS=, && echo "${parts[*]}")) in $root"
