# needs: bash
# A limit of file sizes that a shell sets for its programs.
cd "$D" || exit 1
bash -c 'ulimit -f 4; head -c 100000 /dev/zero > limited; echo "head: $?"; wc -c < limited' 2> /dev/null
bash -c 'ulimit -f 4; trap "" XFSZ; head -c 100000 /dev/zero > refused; echo "head: $?"; wc -c < refused' 2> /dev/null
