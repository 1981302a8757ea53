# needs: gcc
# Libraries that lie in the directory: linked by name, by LD_LIBRARY_PATH, by rpath, and loaded while running.
cd "$D" || exit 1
printf 'int answer(void) { return 42; }\n' > lib.c
printf '#include <stdio.h>\nint answer(void);\nint main(void) { return printf("%%d\\n", answer()) < 0; }\n' > main.c
printf '#include <dlfcn.h>\n#include <stdio.h>\n#include <stdlib.h>
int main(int n, char **a) { void *l = dlopen(a[1], RTLD_NOW); if (!l) { puts("not loaded"); return 1; }
int (*f)(void) = (int (*)(void))dlsym(l, "answer"); printf("%%d\\n", f()); return dlclose(l); }\n' > load.c
gcc -shared -fPIC -o libanswer.so lib.c && gcc -o main main.c -L. -lanswer && gcc -o rpath main.c -L. -lanswer -Wl,-rpath,"$D"
gcc -o load load.c -ldl; LD_LIBRARY_PATH="$D" ./main; ./rpath; ./load "$D/libanswer.so"; echo "exit $?"
ldd ./rpath | grep -c "libanswer.so => $D/libanswer.so"
