#!/usr/bin/env bash
# Builds target/debian/weldfs_VERSION-1_amd64.deb: what install.sh installs, packed by cargo-deb as
# integrations/cli/Cargo.toml says ([package.metadata.deb]).
#
#   packaging/build-deb.sh [--no-build]     --no-build packs the release that is built already
#
# cargo-deb is taken from PATH, or built once into target/tools (a minute).
set -euo pipefail
cd "$(dirname "$0")/.."
build=()
case ${1:-} in
"") ;;
--no-build) build=(--no-build) ;;
-h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0" && exit 0 ;;
*) echo "build-deb.sh: unknown argument $1 (see --help)" >&2 && exit 2 ;;
esac

export PATH=$PATH:$PWD/target/tools/bin
if ! command -v cargo-deb >/dev/null; then
    echo "build-deb.sh: building cargo-deb into target/tools" >&2
    # A debug build packs as well, in a quarter of the time; gzip is what every dpkg reads.
    cargo install cargo-deb --version 3.8.0 --locked --debug --no-default-features --features gzip --quiet \
        --root target/tools --target-dir target/tools/build
    rm -rf target/tools/build
fi

rm -rf target/deb-root
./install.sh "${build[@]}" --strip --destdir target/deb-root --prefix /usr --libdir lib/x86_64-linux-gnu
cd target/deb-root/usr/share
rm -r weldfs # the list of what was installed: dpkg has its own
mv zsh/site-functions zsh/vendor-completions
cd - >/dev/null
cargo deb --package weldfs-cli --no-build --no-strip --fast --quiet --output target/debian/
