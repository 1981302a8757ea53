#!/usr/bin/env bash
# Installs the release as a user would, each way apart, and uses what is there afterwards:
#   cargo install      the program alone, moved to an empty folder, runs a program with the library that it carries
#   install.sh         everything, used from its prefix; shells load the completions, man pages and the systemd unit
#                      parse, a C program is built with pkg-config and works on a device, the lines of
#                      docs/ENGINES.md are run for each engine; uninstalling leaves nothing
#   make install       the same into a stage, with DESTDIR and a prefix; uninstalling leaves nothing
# Tier `install` of ./test. Fails at the first thing that does not hold.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/page.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf -- '-- %s\n' "$*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
equal() { [[ $1 == "$2" ]] || fail "$3: \"$1\", not \"$2\""; }
# Nothing of this shell's environment, nothing of the build's folders, and an empty folder to work in.
clean() { env -i --chdir="$work/empty" HOME="$work/home" PATH=/usr/bin:/bin TMPDIR="$work" "$@"; }
mkdir "$work/home" "$work/empty"
# Which preload library a program has that is started by the weldfs given.
library() { clean "$1" run -- sh -c 'cat /proc/self/maps' | grep -o '/[^ ]*weldfs_preload[^ ]*' | sort -u || true; }
try='echo hello >/weld/word && cat /weld/word && test ! -e "$HOME/word"'

say "cargo install"
cargo install --quiet --locked --path integrations/cli --root "$work/cargo" 2>"$work/log" || { cat "$work/log"; fail "cargo install"; }
equal "$(cd "$work/cargo/bin" && echo *)" weldfs "what cargo install installs"
mkdir "$work/alone" && mv "$work/cargo/bin/weldfs" "$work/alone/"
equal "$(clean "$work/alone/weldfs" run -- sh -c "$try")" hello "a program under the program alone"
# Programs that are started by it have the library from there.
maps=$(library "$work/alone/weldfs")
if ((EUID == 0)); then cache=/var/cache/weldfs; else cache=$work/home/.cache/weldfs; fi
[[ $maps == "$cache"/libweldfs_preload-*.so ]] || fail "the library is loaded from: $maps"
if ((EUID == 0)); then
    chmod 711 "$work"
    said=$(clean "$work/alone/weldfs" run -- setpriv --reuid 65534 --regid 65534 --clear-groups \
        sh -c 'cat /proc/self/maps' | grep -c weldfs_preload) || fail "another user's program runs without the library"
    ((said > 0))
fi
said=$("$work/alone/weldfs" --version)
[[ $said =~ ^weldfs\ [0-9]+\.[0-9]+\.[0-9]+ ]] || fail "--version: $said"
if commit=$(git rev-parse --short=12 HEAD 2>/dev/null); then
    [[ $said == *"($commit, "* ]] || fail "--version says \"$said\", the commit is $commit"
fi

say "install.sh: what cannot be built is named, with the packages that it needs"
missing=()
for part in rocksdb leveldb fio engines; do
    ! said=$(CC=no-such-compiler CXX=no-such-compiler ./install.sh --prefix "$work/none" --only $part 2>&1) ||
        fail "$part is installed without a compiler"
    needs=${said#"install.sh: $part cannot be built: it needs the packages "}
    [[ $said != "$needs" ]] || fail "install.sh --only $part says: $said"
    grep -qF "| \`$part\` | $needs | " "$page" || fail "$page says that $part needs something else than: $needs"
done
# With nothing built of them, all else is installed.
built=${CARGO_TARGET_DIR:-target}
mkdir "$work/target" && ln -s "$(realpath "$built")/release" "$work/target/release"

say "install.sh: everything"
prefix=$work/prefix
# Built one by one: what is missing here is named, and the rest is looked at.
for part in rocksdb leveldb fio engines; do
    ./install.sh --build-only --only $part >"$work/log" 2>&1 || {
        grep -q "^install.sh: $part cannot be built" "$work/log" || { tail -20 "$work/log"; fail "building $part"; }
        missing+=("$part ($(tail -1 "$work/log"))")
    }
done
have() { [[ " ${missing[*]} " != *" $1 ("* ]]; }
./install.sh --prefix "$prefix" >/dev/null
for part in rocksdb leveldb fio engines; do
    ! have $part || grep -q "^$part file " "$prefix/share/weldfs/installed" || fail "$part is built and not installed"
done
for file in bin/weldfs lib/weldfs/libweldfs_preload.so lib/libweldfs.so lib/libweldfs.a lib/pkgconfig/weldfs.pc \
    lib/libweldfs_sqlite.so lib/libweldfs_sqlite.a lib/pkgconfig/weldfs_sqlite.pc include/weldfs_sqlite.h sbin/mount.weldfs sbin/fsck.weldfs sbin/mkfs.weldfs \
    include/weldfs.h share/man/man1/weldfs.1 share/man/man1/weldfs-run.1 share/doc/weldfs/README.md \
    share/doc/weldfs/docs/API.md share/bash-completion/completions/weldfs lib/systemd/system/weldfs@.service \
    lib/sysusers.d/weldfs.conf share/weldfs/installed; do
    [[ -s $prefix/$file ]] || fail "$file is not installed"
done
# What is listed is what is there, neither more nor less.
find "$prefix" -type f -o -type l | sort >"$work/there"
{ sed -n "s|^[a-z]* file |$prefix/|p" "$prefix/share/weldfs/installed" && echo "$prefix/share/weldfs/installed"; } | sort >"$work/listed"
diff "$work/listed" "$work/there" || fail "the list of what is installed (<) is not what is there (>)"
equal "$(clean "$prefix/bin/weldfs" run -- sh -c "$try")" hello "a program under the installed weldfs"
maps=$(library "$prefix/bin/weldfs")
equal "$maps" "$(realpath "$prefix/lib/weldfs/libweldfs_preload.so")" "the library of the installed weldfs"

say "completions"
said=$(clean bash -c ". $prefix/share/bash-completion/completions/weldfs; COMP_WORDS=(weldfs scr); COMP_CWORD=1; \
    COMP_LINE='weldfs scr' COMP_POINT=10; _weldfs weldfs scr weldfs; echo \"\${COMPREPLY[*]}\"")
equal "$said" scrub "bash completes weldfs scr"
if command -v zsh >/dev/null; then
    zsh -n "$prefix/share/zsh/site-functions/_weldfs"
    # shellcheck disable=SC2016 # for zsh
    said=$(clean zsh -f -c 'fpath=($1 $fpath); autoload -U compinit; compinit -u -d $2; echo $_comps[weldfs]' \
        zsh "$prefix/share/zsh/site-functions" "$work/zcompdump")
    equal "$said" _weldfs "zsh completes weldfs by"
else
    missing+=(zsh)
fi
if command -v fish >/dev/null; then
    said=$(clean fish --no-config -c "source $prefix/share/fish/vendor_completions.d/weldfs.fish; complete -C 'weldfs scr'" | cut -f1)
    equal "$said" scrub "fish completes weldfs scr"
else
    missing+=(fish)
fi

say "man pages"
if command -v mandoc >/dev/null; then
    # Errors only: style is for people who write roff.
    mandoc -T lint -W error "$prefix"/share/man/man1/*.1 || fail "a man page does not parse"
    # Bold is a letter, a backspace, and the letter again. Into a file: grep -q would end mandoc's pipe early.
    mandoc "$prefix/share/man/man1/weldfs-fsck.1" | sed 's/.\x08//g' >"$work/page"
    grep -q 'EXIT STATUS' "$work/page" || fail "the page of fsck"
else
    missing+=(mandoc)
fi
# A page for each verb that the help lists.
"$prefix/bin/weldfs" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z]*\) .*/\1/p' | grep -vx help >"$work/verbs"
(($(wc -l <"$work/verbs") > 30)) || fail "the help lists $(wc -l <"$work/verbs") verbs"
while IFS= read -r verb; do
    [[ -s $prefix/share/man/man1/weldfs-$verb.1 ]] || fail "weldfs $verb has no page"
done <"$work/verbs"

say "the systemd unit"
unit=$prefix/lib/systemd/system/weldfs@.service
grep -q "^ExecStart=$prefix/bin/weldfs " "$unit" || fail "the unit starts another weldfs"
if command -v systemd-analyze >/dev/null; then
    # It names what it does not know and goes on: every word is a complaint. Its pages are not looked up.
    said=$(systemd-analyze verify --man=no "$unit" 2>&1) || fail "systemd-analyze verify: $said"
    equal "$said" "" "systemd-analyze verify"
    # The same with a wrong key, or nothing would be known by that.
    mkdir "$work/units" && sed 's/^UMask=/UMasc=/' "$unit" >"$work/units/weldfs@.service"
    said=$(systemd-analyze verify --man=no "$work/units/weldfs@.service" 2>&1) || true
    [[ $said == *UMasc* ]] || fail "systemd-analyze verify finds nothing: \"$said\""
    said=$(systemd-sysusers --dry-run --root="$work/empty" "$prefix/lib/sysusers.d/weldfs.conf" 2>&1) || fail "systemd-sysusers: $said"
    [[ $said == *weldfs* ]] || fail "systemd-sysusers makes no user: \"$said\""
else
    missing+=(systemd-analyze)
fi

say "the C library"
cat >"$work/try.c" <<'C'
#include <stdio.h>
#include <weldfs.h>
int main(void) { printf("%s\n", weldfs_strerror(-2)); return 0; }
C
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
# shellcheck disable=SC2046 # one word each
cc "$work/try.c" -o "$work/shared" $(pkg-config --cflags --libs weldfs) "-Wl,-rpath,$prefix/lib"
# shellcheck disable=SC2046
cc "$work/try.c" -o "$work/static" $(pkg-config --cflags weldfs) "$prefix/lib/libweldfs.a" -lpthread -ldl -lm
equal "$("$work/shared")" "$("$work/static")" "shared and static say the same"
ldd "$work/shared" >"$work/needs"
grep -qF "libweldfs.so.0 => $prefix/lib/libweldfs.so.0 " "$work/needs" || fail "the shared program has another library"
# The example of the documents, on a device that the installed program serves.
# shellcheck disable=SC2046
cc examples/c/log.c -o "$work/log" $(pkg-config --cflags --libs weldfs) "-Wl,-rpath,$prefix/lib"
clean "$prefix/bin/weldfs" mkfs "$work/c.img" --size 64M --medium pmem >/dev/null
clean "$prefix/bin/weldfs" serve "$work/c.img" 2>"$work/log.serve" &
device=$!
clean "$prefix/bin/weldfs" wait "$work/c.img" || fail "the device does not answer: $(cat "$work/log.serve")"
said=$(clean "$work/log" "$work/c.img.sock") || fail "examples/c/log.c: $said"
equal "$said" "1000 records, all sound" "examples/c/log.c says"
clean "$prefix/bin/weldfs" ls "$work/c.img:/" >"$work/names"
equal "$(cat "$work/names")" log "what examples/c/log.c leaves in the device"
clean "$prefix/bin/weldfs" stop "$work/c.img"
wait "$device" || fail "the device ended with $?"

say "SQLite in a C program"
if [[ -e /usr/include/sqlite3.h ]] && pkg-config --exists sqlite3; then
    clean "$prefix/bin/weldfs" mkfs "$work/starts.img" --size 64M >/dev/null
    # shellcheck disable=SC2046 # one word each
    cc examples/c/sqlite.c -o "$work/starts" $(pkg-config --cflags --libs weldfs_sqlite sqlite3) "-Wl,-rpath,$prefix/lib"
    # shellcheck disable=SC2046
    cc examples/c/sqlite.c -o "$work/starts.static" $(pkg-config --cflags weldfs_sqlite) \
        "$prefix/lib/libweldfs_sqlite.a" -l:libsqlite3.a -lpthread -ldl -lm
    ldd "$work/starts.static" >"$work/needs"
    ! grep -q sqlite "$work/needs" || fail "the static program needs a library: $(cat "$work/needs")"
    equal "$(clean "$work/starts" "$work/starts.img:/a.db")" "started 1 times" "examples/c/sqlite.c, shared, says"
    equal "$(clean "$work/starts.static" "$work/starts.img:/a.db")" "started 2 times" "examples/c/sqlite.c, static, says"
    # Both libraries, written in Rust, in one program.
    # shellcheck disable=SC2046
    cc "$work/try.c" -Wl,--whole-archive "$prefix/lib/libweldfs_sqlite.a" "$prefix/lib/libweldfs.a" \
        -Wl,--no-whole-archive -o "$work/both" $(pkg-config --cflags weldfs) -lpthread -ldl -lm || fail "both archives"
    equal "$("$work/both")" "$("$work/static")" "a program with both archives says"
    ! clean "$work/starts" "$work/none.img:/a.db" 2>"$work/why" || fail "examples/c/sqlite.c finds what is not there"
    grep -q "unable to open database file" "$work/why" || fail "examples/c/sqlite.c: $(cat "$work/why")"
else
    missing+=(libsqlite3-dev)
fi

say "the engines: the lines of $page"
page_checked SQLite RocksDB LevelDB fio || fail "$page"
# As in a prefix of one's own: the page says which variables.
there=(PATH="$prefix/bin:/usr/bin:/bin" LD_LIBRARY_PATH="$prefix/lib" PKG_CONFIG_PATH="$prefix/lib/pkgconfig")
in_folder() { # script
    rm -rf "$work/folder" && mkdir "$work/folder"
    env -i --chdir="$work/folder" HOME="$work/home" TMPDIR="$work" "${there[@]}" bash -euo pipefail -c "$1"
}
run=0
try_page() { # engine, the program that it needs, the part
    have "$3" || return 0
    if ! command -v "$2" >/dev/null; then missing+=("$2 (for the lines of $1)") && return; fi
    page_run "$1" in_folder || fail "$page, $1"
    run=$((run + 1))
}
while IFS= read -r engine; do
    case $engine in
    SQLite) try_page SQLite sqlite3 sqlite ;;
    RocksDB) try_page RocksDB db_bench rocksdb ;;
    LevelDB) try_page LevelDB c++ leveldb ;;
    fio) try_page fio fio fio ;;
    esac
done < <(page_engines)
# Each was run, or is named as missing: its program, or its part.
lacking=0
for one in "${missing[@]}"; do [[ $one != *" ("* || $one == "engines ("* ]] || lacking=$((lacking + 1)); done
((run + lacking == 4)) || fail "lines of $run engines were run, $lacking are missing"
if have rocksdb; then
    cat >"$work/rocks.cc" <<'C'
#include <iostream>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/plugin/weldfs/weldfs_fs.h>
int main() {
  std::shared_ptr<rocksdb::FileSystem> fs;
  rocksdb::DB* db = nullptr;
  rocksdb::Options options;
  options.create_if_missing = true;
  auto s = rocksdb::NewWeldFileSystem("disk.img", &fs);
  auto env = rocksdb::NewCompositeEnv(fs);
  options.env = env.get();
  if (s.ok()) s = rocksdb::DB::Open(options, "/db", &db);
  std::cout << s.ToString() << "\n";
  delete db;
}
C
    c++ -std=c++17 "$work/rocks.cc" -o "$work/rocks" -I"$prefix/include" -L"$prefix/lib" -lweldfs_rocksdb -lrocksdb
    equal "$(in_folder "weldfs mkfs disk.img --size 64M >/dev/null && $work/rocks && weldfs ls disk.img:/")" "OK
db" "a program linked with RocksDB's plug-in"
fi
if have leveldb; then
    page_block LevelDB cpp >"$work/level.cc"
    c++ "$work/level.cc" -o "$work/level" -I"$prefix/include" "$prefix/lib/libweldfs_leveldb.a" "$prefix/lib/libweldfs.a" \
        -lleveldb -lpthread -ldl -lm
    readelf -d "$work/level" >"$work/needs"
    ! grep -q libweldfs "$work/needs" || fail "the statically linked program needs a shared library"
    equal "$(in_folder "weldfs mkfs disk.img --size 64M >/dev/null && $work/level")" "OK value" "LevelDB's Env, linked statically"
fi
if have fio && command -v fio >/dev/null; then
    in_folder "weldfs mkfs disk.img --size 256M
        WELDFS_FIO=libweldfs_fio.so WELDFS_TARGET=disk.img fio $prefix/share/weldfs/fio/verify.fio" >"$work/log" 2>&1 ||
        { cat "$work/log"; fail "an installed job file"; }
fi

say "the drivers of weldfs bench engines"
if have engines; then
    for driver in "$prefix"/libexec/weldfs/weldfs-drive-*; do
        engine=${driver##*/weldfs-drive-}
        [[ $engine != sqlite-batch ]] || continue
        clean "$prefix/bin/weldfs" bench engines --quick --medium pmem --systems inline --engines "$engine" \
            --workloads fillsync,one-row >"$work/log" 2>&1 ||
            { tail -5 "$work/log"; fail "weldfs bench engines, $engine"; }
    done
fi

say "what is not built is left out"
CARGO_TARGET_DIR=$work/target ./install.sh --no-build --prefix "$work/none" >"$work/log" 2>&1 || { cat "$work/log"; fail "install.sh"; }
for part in rocksdb leveldb fio engines; do
    grep -q "^install.sh: $part is left out: it is not built" "$work/log" || fail "nothing says that $part is left out"
    ! grep -q "^$part " "$work/none/share/weldfs/installed" || fail "$part is installed and left out"
done
[[ -x $work/none/bin/weldfs ]] || fail "the program is left out, too"

say "an upgrade removes what is there no more, and uninstalling leaves nothing"
echo stale >"$prefix/share/man/man1/weldfs-gone.1"
echo "program file share/man/man1/weldfs-gone.1" >>"$prefix/share/weldfs/installed"
echo mine >"$prefix/share/man/man1/mine.1"
./install.sh --no-build --prefix "$prefix" --only program >/dev/null
[[ ! -e $prefix/share/man/man1/weldfs-gone.1 ]] || fail "the page of an older version is still there"
[[ -e $prefix/include/weldfs.h ]] || fail "installing one part removed another"
./install.sh --uninstall --prefix "$prefix" >/dev/null
equal "$(cd "$prefix" && find . -type f -o -type l)" ./share/man/man1/mine.1 "what uninstalling leaves"
rm -r "$prefix/share"
equal "$(ls -A "$prefix")" "" "folders that uninstalling leaves"
! ./install.sh --uninstall --prefix "$prefix" 2>/dev/null || fail "uninstalling twice"

say "staged for a package"
make -s install DESTDIR="$work/stage" PREFIX=/usr LIBDIR=lib/x86_64-linux-gnu >/dev/null
grep -q "^libdir=\${prefix}/lib/x86_64-linux-gnu" "$work/stage/usr/lib/x86_64-linux-gnu/pkgconfig/weldfs.pc" || fail "pkg-config's libdir"
! grep -rqF "$work" "$work/stage/usr/lib/x86_64-linux-gnu/pkgconfig" || fail "the stage's name is in the installed files"
for part in rocksdb leveldb fio; do
    have $part || continue
    readelf -d "$work/stage/usr/lib/x86_64-linux-gnu/libweldfs_$part.so" >"$work/needs"
    # shellcheck disable=SC2016 # the linker's word
    equal "$(sed -n 's/.*R[UN]*PATH).*: \[\(.*\)\]/\1/p' "$work/needs")" '$ORIGIN' "where libweldfs_$part.so looks for libraries"
    grep -q 'NEEDED.*\[libweldfs\.so\.0\]' "$work/needs" || fail "libweldfs_$part.so needs no C library"
done
unit=$work/stage/usr/lib/systemd/system/weldfs@.service
grep -q '^ExecStart=/usr/bin/weldfs ' "$unit" || fail "the staged unit starts another weldfs"
make -s uninstall DESTDIR="$work/stage" PREFIX=/usr >/dev/null
equal "$(cd "$work/stage" && find . -mindepth 1)" ./usr "what make uninstall leaves"
# The other spelling, and what make install-strip takes out.
make -s install-strip DESTDIR="$work/small" prefix=/opt/weldfs >/dev/null
equal "$(clean "$work/small/opt/weldfs/bin/weldfs" run -- sh -c "$try")" hello "a program under the stripped weldfs"
readelf -SW "$work"/small/opt/weldfs/lib/libweldfs.so.*.*.* >"$work/sections"
grep -q ' \.dynsym ' "$work/sections" || fail "the stripped library has lost its names"
! grep -q ' \.symtab ' "$work/sections" || fail "make install-strip strips nothing"
for part in rocksdb leveldb fio; do
    ! have $part || readelf -SW "$work/small/opt/weldfs/lib/libweldfs_$part.so" >"$work/sections"
    ! grep -q ' \.symtab ' "$work/sections" || fail "make install-strip does not strip $part"
done
make -s uninstall DESTDIR="$work/small" prefix=/opt/weldfs >/dev/null
equal "$(cd "$work/small" && echo $(find . -mindepth 1 | sort))" "./opt ./opt/weldfs" "what make uninstall leaves of it"

if ((${#missing[@]})); then
    line="packaging/test-install.sh: not looked at for want of: ${missing[*]}"
    echo "skipped: $line"
    [[ -z ${WELDFS_TEST_SKIPS:-} ]] || echo "$line" >>"$WELDFS_TEST_SKIPS"
fi
echo "installing holds"
