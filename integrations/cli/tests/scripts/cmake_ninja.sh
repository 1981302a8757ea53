# needs: cmake ninja make cc c++ ccache
# A project of a library, a program and generated code: configured, built by both generators, tested, installed, packed.
mkdir "$D/p" && cd "$D/p" || exit 1
export CCACHE_DIR="$D/ccache" HOME="$T"
cat > CMakeLists.txt << 'END'
cmake_minimum_required(VERSION 3.16)
project(p VERSION 1.2 LANGUAGES C CXX)
set(CMAKE_C_COMPILER_LAUNCHER ccache)
set(CMAKE_CXX_COMPILER_LAUNCHER ccache)
configure_file(config.h.in config.h)
add_custom_command(OUTPUT table.c COMMAND ${CMAKE_COMMAND} -DOUT=table.c -P ${CMAKE_SOURCE_DIR}/table.cmake DEPENDS table.cmake)
add_library(l STATIC l.c table.c)
target_include_directories(l PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
add_executable(m m.cc)
target_link_libraries(m l)
install(TARGETS m l)
install(FILES config.h.in DESTINATION share RENAME c)
enable_testing()
add_test(NAME runs COMMAND m 12)
add_test(NAME wrong COMMAND m 13)
set_tests_properties(wrong PROPERTIES WILL_FAIL TRUE)
set(CPACK_GENERATOR TGZ)
include(CPack)
END
echo '#define NAME "@PROJECT_NAME@ @PROJECT_VERSION@"' > config.h.in
cat > table.cmake << 'END'
file(WRITE ${OUT} "int table[] = {")
foreach(i RANGE 300)
    file(APPEND ${OUT} "${i},")
endforeach()
file(APPEND ${OUT} "};\n")
END
echo 'extern int table[]; int l(int i) { return table[i * 2]; }' > l.c
cat > m.cc << 'END'
#include <cstdio>
#include <cstdlib>
#include "config.h"
extern "C" int l(int);
int main(int, char **v) { int n = l(atoi(v[1])); printf("%s %d\n", NAME, n); return n != 24; }
END
for generator in Ninja 'Unix Makefiles'; do
    rm -rf b; cmake -S . -B b -G "$generator" -DCMAKE_INSTALL_PREFIX="$D/i" > "$T/configure" 2>&1; echo "configured: $?"
    cmake --build b -j 4 > "$T/build" 2>&1; echo "built: $?"; ./b/m 12; ./b/m 1; echo $?
    (cd b && ctest -j 2 2>&1 | grep -E 'tests passed') ; cmake --install b > /dev/null; find "$D/i" -type f | sort
    touch l.c; cmake --build b 2>&1 | grep -c -E 'l\.c|Building C object'; cmake --build b 2>&1 | grep -ciE 'building|linking'
done
"$D/i/bin/m" 12; (cd b && cpack > /dev/null 2>&1; echo "packed: $?"; tar tzf p-1.2-Linux.tar.gz | sort)
ccache -s 2>/dev/null | grep -cE 'Hits|hits'; find "$D/ccache" -type f | wc -l | awk '{ print ($1 > 4) }'
