# needs: bash
# Jobs that are stopped, continued and waited for, while their descriptors lie in the directory.
bash -c '
cd "$D" || exit 1
export TMPDIR="$D"
set -m
sleep 100 > slept & kill -STOP %1; while [[ $(jobs) != *Stopped* ]]; do sleep 0.05; done; echo stopped
kill -CONT %1; kill %1; wait %1; echo "ended with $?"
(for i in 1 2 3; do echo "line $i"; sleep 0.05; done) > out & fg %% > /dev/null; cat out
for i in 1 2 3; do (exit $i) & wait $!; echo "exit $?"; done; (exit 7) & wait -n; echo "next $?"
(read -r word; echo "got $word" > word) < <(echo given) & wait; cat word
coproc C { while read -r line; do echo "<$line>"; done > copied; }; echo one >&"${C[1]}"; echo two >&"${C[1]}"
exec {fd}>&"${C[1]}"; eval "exec ${C[1]}>&-"; exec {fd}>&-; wait; cat copied
exec 7<>both; echo written >&7; exec 8<&7 7>&-; echo again >&8; exec 8>&-; cat both
exec 6>&1 > redirected; echo hidden; seq 3; exec >&6 6>&-; cat redirected
{ echo a; echo b >&2; } > >(sed s/^/out:/ > o) 2> >(sed s/^/err:/ > e); wait; until [ -s o ] && [ -s e ]; do sleep 0.05; done; cat o e
cat << HERE > here
$(seq 20000 | sha256sum)
HERE
cat here
seq 100000 > n; { head -n 1; sed -n "2q;1p"; } < n; tail -n +99999 < n | tee t1 t2 | wc -l; cmp t1 t2 && echo tee
mkfifo "$T/p"; (cat "$T/p" > frompipe) & seq 1000 > "$T/p"; wait; wc -l < frompipe
trap "echo interrupted > trapped; exit 3" INT; (sleep 0.1; kill -INT $$) & while :; do sleep 0.05; done
' 2> /dev/null
echo "shell: $?"; cat "$D/trapped"
