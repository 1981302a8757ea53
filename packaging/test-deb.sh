#!/usr/bin/env bash
# Builds the Debian packages, installs weldfs into a clean root of this release of Debian (debootstrap), and uses it
# there: first with nothing else, then with a compiler, man, a shell that completes, and systemd beside it; then the
# engines, by the lines of docs/ENGINES.md, from the first, which installs them. Removing leaves nothing. Tier `deb` of
# ./test. Needs root, debootstrap and its mirror; exit status 77 where it cannot be tried.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/page.sh
skip() { echo "skipped: $*"; exit 77; }
fail() { echo "FAILED: $*" >&2; exit 1; }
say() { printf -- '-- %s\n' "$*"; }

((EUID == 0)) || skip "a clean root needs root"
# shellcheck disable=SC1091
. /etc/os-release
case $ID in
debian) mirror=http://deb.debian.org/debian ;;
ubuntu) mirror=http://archive.ubuntu.com/ubuntu ;;
*) skip "packages for $ID are not built" ;;
esac
# What builds the packages: all five, or nothing is tried.
for file in /usr/sbin/debootstrap /usr/bin/{dpkg-deb,dpkg-shlibdeps,fio,cmake,make,g++} /usr/include/{rocksdb/env.h,leveldb/env.h,sqlite3.h}; do
    [[ ! -e $file ]] || continue
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq debootstrap dpkg dpkg-dev fio cmake make g++ \
        librocksdb-dev libleveldb-dev libsqlite3-dev >/dev/null; } || skip "no $file"
done
equal() { [[ $1 == "$2" ]] || fail "$3: \"$1\", not \"$2\""; }

say "the packages"
packaging/build-deb.sh --all
deb=$(echo target/debian/weldfs_*.deb)
for file in target/debian/weldfs*.deb; do dpkg-deb --info "$file" | sed 's/^/   /'; done
# Whatever is needed beyond the C library would be missing in the clean root, and in the control file.
work=$(mktemp -d) && clean=$work/root
trap 'umount "$clean/proc" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT

say "a clean root: $VERSION_CODENAME"
mkdir "$clean"
debootstrap --variant=minbase "$VERSION_CODENAME" "$clean" "$mirror" >"$work/log" 2>&1 ||
    { tail -3 "$work/log"; skip "debootstrap failed (see above)"; }
mount -t proc proc "$clean/proc" || skip "no proc file system may be mounted here"
mkdir "$clean/packages" && cp target/debian/weldfs*.deb "$clean/packages/"
cp "$deb" "$clean/weldfs.deb"
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb DEBIAN_FRONTEND=noninteractive chroot "$clean" "$@"; }
inside apt-get install -y -qq --no-install-recommends /weldfs.deb >"$work/log" 2>&1 || { cat "$work/log"; fail "apt-get install"; }
[[ -s $clean/var/lib/dpkg/info/weldfs.md5sums ]] || fail "the package has no checksums"
equal "$(inside dpkg --verify weldfs)" "" "dpkg --verify"

say "used there"
said=$(inside weldfs --version)
[[ $said =~ ^weldfs\ [0-9]+\.[0-9]+\.[0-9]+ ]] || fail "--version: $said"
if commit=$(git rev-parse --short=12 HEAD 2>/dev/null); then
    [[ $said == *"($commit, "* ]] || fail "--version says \"$said\", the commit is $commit"
fi
version=${said#weldfs } version=${version%% *}
[[ $deb == *"/weldfs_$version-"* ]] || fail "the program is $version, the package $deb"
# shellcheck disable=SC2016 # for the shell inside
equal "$(inside weldfs run -- sh -c 'echo hello >/weld/a && cat /weld/a && ls /weld')" "hello
a" "weldfs run"
equal "$(inside weldfs run -- cat /proc/self/maps | grep -o '/[^ ]*weldfs_preload[^ ]*' | sort -u)" \
    /usr/lib/weldfs/libweldfs_preload.so "the library of weldfs run"
# shellcheck disable=SC2016 # for the shell inside
inside sh -euc 'cd /tmp
    weldfs mkfs disk.img --size 256M --medium pmem >/dev/null
    weldfs put /etc disk.img:/etc
    weldfs cat disk.img:/etc/passwd | cmp - /etc/passwd
    weldfs fsck -n disk.img >/dev/null'
# Another user, by the library and the device of root's run.
[[ $(inside weldfs run -- setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'grep -c weldfs_preload /proc/self/maps') -gt 0 ]] ||
    fail "another user's program runs without the library"
inside weldfs demo --quick || fail "weldfs demo --quick"
inside ldconfig -p >"$work/libraries"
grep -q 'libweldfs\.so\.0 ' "$work/libraries" || fail "the C library is not in the linker's cache"

say "used with what belongs to it: a compiler, man, completion, systemd"
{
    inside apt-get update -qq
    inside apt-get install -y -qq --no-install-recommends gcc libc6-dev pkg-config man-db bash-completion zsh fish systemd
} >"$work/log" 2>&1 || { tail -3 "$work/log"; fail "apt-get install of what is tried with it"; }
# The package's script makes the user where systemd is.
inside apt-get install -y -qq --reinstall /weldfs.deb >"$work/log" 2>&1 || { cat "$work/log"; fail "apt-get install, again"; }
cp examples/c/log.c "$clean/tmp/log.c"
# shellcheck disable=SC2016 # for the shell inside
inside sh -euc 'cd /tmp
    cc log.c -o shared $(pkg-config --cflags --libs weldfs)
    cc log.c -o static $(pkg-config --cflags weldfs) -Wl,-Bstatic -lweldfs -Wl,-Bdynamic -lpthread -ldl -lm
    weldfs mkfs c.img --size 64M --medium pmem >/dev/null
    weldfs serve c.img & weldfs wait c.img
    for form in shared static; do test "$(./$form c.img.sock)" = "1000 records, all sound"; done
    weldfs stop c.img && wait $!' || fail "a C program with the library"
equal "$(inside pkg-config --modversion weldfs)" "$version" "pkg-config's version"
inside ldd /tmp/shared /tmp/static >"$work/needs"
equal "$(grep -c libweldfs "$work/needs")" 1 "programs that need the shared library, of one that does and one that does not"
inside man weldfs-run >"$work/page" 2>"$work/log" || fail "man weldfs-run: $(cat "$work/log")"
grep -q -- '--image' "$work/page" || fail "man weldfs-run says nothing of --image"
# shellcheck disable=SC2016
said=$(inside bash -c '. /usr/share/bash-completion/bash_completion; _completion_loader weldfs || true
    COMP_WORDS=(weldfs scr) COMP_CWORD=1 COMP_LINE="weldfs scr" COMP_POINT=10; _weldfs weldfs scr weldfs
    echo "${COMPREPLY[*]}"') || fail "bash loads no completion"
equal "$said" scrub "bash completes weldfs scr"
# shellcheck disable=SC2016
equal "$(inside zsh -fc 'autoload -U compinit; compinit -u -d /tmp/dump; echo $_comps[weldfs]')" _weldfs "zsh completes by"
equal "$(inside fish -c "complete -C 'weldfs scr'" | cut -f1)" scrub "fish completes weldfs scr"
# What systemd does not know it only names.
equal "$(inside systemd-analyze verify --man=no /usr/lib/systemd/system/weldfs@.service 2>&1)" "" "systemd-analyze verify"
# As the unit runs it: its user, its folder, its settings.
inside getent passwd weldfs >"$work/user" || fail "the package makes no user weldfs"
# shellcheck disable=SC2016
inside sh -euc 'install -d -o weldfs -g weldfs /var/lib/weldfs /run/weldfs/disk; mkdir -p /etc/weldfs
    as="setpriv --reuid weldfs --regid weldfs --clear-groups --no-new-privs"
    $as weldfs mkfs /var/lib/weldfs/disk.img --size 64M >/dev/null
    printf "[serve]\nimage = \"/var/lib/weldfs/disk.img\"\nsocket = \"/run/weldfs/disk/socket\"\n" >/etc/weldfs/disk.toml
    command=$(sed -n "s/^ExecStart=//p" /usr/lib/systemd/system/weldfs@.service | sed "s/%i/disk/")
    $as $command & weldfs wait /run/weldfs/disk/socket
    test "$(weldfs run --socket /run/weldfs/disk/socket -- sh -c "echo kept >/weld/a && cat /weld/a")" = kept
    kill $! && wait $!' || fail "a device as the unit starts it"

say "the engines: the lines of $page"
names=(SQLite RocksDB LevelDB fio)
page_checked "${names[@]}" || fail "$page"
echo 'APT::Get::Assume-Yes "true"; APT::Install-Recommends "false";' >"$clean/etc/apt/apt.conf.d/90lines"
in_folder() { inside bash -euo pipefail -c "rm -rf /folder; mkdir /folder; cd /folder"$'\n'"$1"; }
for engine in "${names[@]}"; do
    page_lines "$engine"
    # As root in a root without sudo.
    inside bash -euc "sudo() { \"\$@\"; }; cd /packages; ${lines[0]}" >"$work/log" 2>&1 ||
        { tail -5 "$work/log"; fail "$engine: ${lines[0]}"; }
    echo "   $engine: ${lines[0]}"
    page_run "$engine" in_folder || fail "$page, $engine"
done
inside sh -c 'apt-get install /packages/weldfs-engines_*.deb' >"$work/log" 2>&1 ||
    { tail -5 "$work/log"; fail "weldfs-engines"; }
inside weldfs bench engines --quick --medium pmem --systems inline --workloads fillsync,one-row >"$work/log" 2>&1 ||
    { tail -5 "$work/log"; fail "weldfs bench engines"; }
packages=(weldfs weldfs-rocksdb weldfs-leveldb weldfs-fio weldfs-engines)
equal "$(inside dpkg --verify "${packages[@]}")" "" "dpkg --verify of all packages"
# One version of each, and weldfs alone needs no engine.
# shellcheck disable=SC2016 # dpkg-query's
equal "$(inside dpkg-query -W -f '${Version}\n' "${packages[@]}" | sort -u)" "$(dpkg-deb --field "$deb" Version)" "the packages' versions"
! dpkg-deb --field "$deb" Depends Recommends | grep -qE 'rocksdb|leveldb|fio' || fail "weldfs needs an engine"

say "removed"
inside dpkg -L "${packages[@]}" | while IFS= read -r path; do [[ -z $path || -d $clean$path ]] || echo "$path"; done >"$work/files"
(($(wc -l <"$work/files") > 30)) || fail "the package has $(wc -l <"$work/files") files"
inside apt-get purge -y -qq "${packages[@]}" >/dev/null 2>&1 || fail "apt-get purge"
while IFS= read -r path; do [[ ! -e $clean$path ]] || fail "$path is left"; done <"$work/files"
echo "the packages hold"
