#!/usr/bin/env bash
# Installs the release as a user would, each way apart, and uses what is there afterwards:
#   cargo install      the program alone, moved to an empty folder, runs a program with the library that it carries
#   install.sh         everything, used from its prefix; shells load the completions, man pages and the systemd unit
#                      parse, a C program is built with pkg-config and works on a device, SQLite's shell loads the
#                      extension; uninstalling leaves nothing
#   make install       the same into a stage, with DESTDIR and a prefix; uninstalling leaves nothing
# Tier `install` of ./test. Fails at the first thing that does not hold.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
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

say "install.sh: everything"
prefix=$work/prefix
./install.sh --prefix "$prefix" >/dev/null
for file in bin/weldfs lib/weldfs/libweldfs_preload.so lib/libweldfs.so lib/libweldfs.a lib/pkgconfig/weldfs.pc \
    lib/libweldfs_sqlite.so \
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
missing=()
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

say "SQLite's extension"
if command -v sqlite3 >/dev/null; then
    clean "$prefix/bin/weldfs" mkfs "$work/empty/q.img" --size 64M >/dev/null
    shell() { clean sqlite3 -bail -cmd ".load $prefix/lib/libweldfs_sqlite" -cmd '.open file:q.img:/app.db?vfs=weldfs' :memory: "$@"; }
    shell 'create table t(x); insert into t values (41), (1);'
    equal "$(shell 'select sum(x) from t;')" 42 "what SQLite's shell finds again"
    clean "$prefix/bin/weldfs" ls "$work/empty/q.img:/" >"$work/names"
    equal "$(cat "$work/names")" app.db "what SQLite's shell leaves on the image"
    rm "$work/empty/q.img"
else
    missing+=(sqlite3)
fi

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
make -s uninstall DESTDIR="$work/small" prefix=/opt/weldfs >/dev/null
equal "$(cd "$work/small" && echo $(find . -mindepth 1 | sort))" "./opt ./opt/weldfs" "what make uninstall leaves of it"

if ((${#missing[@]})); then
    line="packaging/test-install.sh: not looked at for want of: ${missing[*]}"
    echo "skipped: $line"
    [[ -z ${WELDFS_TEST_SKIPS:-} ]] || echo "$line" >>"$WELDFS_TEST_SKIPS"
fi
echo "installing holds"
