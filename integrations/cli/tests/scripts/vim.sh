# needs: vim
# vim without a screen: edits, its backup, swap and undo files, recovery of what it did not save.
cd "$D" || exit 1
export HOME="$T" TERM=dumb
seq 1 2000 | sed 's/$/ line/' > f
v() { vim -es -N -u NONE -i NONE "$@" < /dev/null; }
v -c '%s/line/LINE/' -c '2,10d' -c 'normal Goat the end' -c wq f; wc -l < f; tail -n 1 f; sha256sum < f
v --cmd 'set backup backupext=.bak writebackup backupskip=' -c '1s/LINE/first/' -c wq f; head -n 1 f f.bak
v --cmd 'set undofile undodir=.' -c '1d' -c w -c q f; ls -a | grep -c '\.un~$'
v --cmd 'set undofile undodir=.' -c 'undo' -c wq f; head -n 1 f
chmod 600 f; ln f hard; v --cmd 'set backupcopy=auto' -c '$d' -c x f; stat -c '%a %h' f; cmp f hard && echo "same file"
v -c 'w! other' -c 'r other' -c 'x' f; wc -l < f; v -c '%!sort -n' -c 'w sorted' -c 'q!' f; head -n 3 sorted
v --cmd 'set swapfile' -c 'normal Ounsaved' -c preserve -c '!kill -9 $PPID' f > /dev/null 2>&1
ls -a | grep -c '^\.f\.sw'; v -r -c 'w recovered' -c 'q!' f > /dev/null 2>&1; grep -c unsaved recovered
v -d f other -c 'q!' -c 'qa!'; echo "diff: $?"; v -c 'argdo %s/LINE/x/e | update' -c qa f sorted; grep -c LINE f sorted
v -c 'e! nowhere/file' -c 'w' -c 'cq' other; echo "exit $?"
