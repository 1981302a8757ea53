# make, make install, make uninstall: what install.sh does, under the names that packagers know. Cargo does the rest.
#
#   make                                build the release
#   sudo make install                   install it in /usr/local
#   make install PREFIX=$HOME/.local    ... without root
#   make install DESTDIR=/tmp/stage PREFIX=/usr LIBDIR=lib/x86_64-linux-gnu
#   make deb                            a Debian package, in target/debian
#
# prefix=DIR in small letters, as in GNU's makefiles, means the same.
prefix = /usr/local
PREFIX ?= $(prefix)
LIBDIR ?= lib
DESTDIR ?=
PROFILE ?= release
where = --prefix "$(PREFIX)" $(if $(DESTDIR),--destdir "$(DESTDIR)")

# What install and install-strip add; root need not have a Rust toolchain, so they build nothing.
from = --no-build --profile $(PROFILE) --libdir "$(LIBDIR)"

.PHONY: all install install-strip uninstall deb check
all:
	./install.sh --build-only --profile $(PROFILE)
install:
	./install.sh $(from) $(where)
install-strip:
	./install.sh --strip $(from) $(where)
uninstall:
	./install.sh --uninstall $(where)
deb:
	packaging/build-deb.sh
check:
	./test
