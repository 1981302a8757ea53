# needs: gcc make ar
# A program of two files, a static library and a generated source, made, made again and installed.
cd "$D" || exit 1
mkdir src && cd src || exit 1
printf '#include <stdio.h>\n#include "made.h"\nint twice(int);\nint main(void) { printf("%%d\\n", twice(MADE)); return 0; }\n' > main.c
printf 'int twice(int n) { return 2 * n; }\n' > twice.c
cat > Makefile <<'END'
CFLAGS = -O2 -g -I.
program: main.o libtwice.a
	$(CC) -o $@ $^
libtwice.a: twice.o
	$(AR) rcs $@ $^
made.h:
	echo '#define MADE 21' > $@
main.o: main.c made.h
install: program
	install -D -m 755 program $(DESTDIR)/bin/program && strip $(DESTDIR)/bin/program
clean:
	rm -f *.o *.a made.h program
END
make -s -j2 && ./program; make; touch -d '2 minutes ago' ./*; touch twice.c; make -n | grep -c gcc || make -n | grep -c cc; make -s -j2; ./program
make -s install DESTDIR="$D/root" && "$D/root/bin/program"; nm program | grep -c ' T twice'; size program > /dev/null && echo size
gcc -fprofile-arcs -ftest-coverage -I. -o covered main.c twice.c && ./covered && ls *.gcda | wc -l
gcc -E -I. main.c | grep -c twice; gcc -flto -I. -O2 -o lto main.c twice.c && ./lto; gcc -save-temps -c twice.c; ls twice.*
echo 'syntax error' > bad.c; gcc -c bad.c 2> errors; echo "gcc: $?"; test -s errors && echo complained
make -s clean; ls
