# Redirections of every kind; children share the offset.
cd "$D" || exit 1
echo one > f; echo two >> f; cat f
(echo a; echo b; sh -c 'echo c') > g; cat g
{ echo x; cat /etc/hostname >/dev/null; echo y; } > h 2>&1; cat h
while read -r line; do echo "<$line>"; done < g
exec 3> third; echo three >&3; echo more >&3; exec 3>&-; cat third
exec 4< g; read -r first <&4; read -r second <&4; echo "$first $second"; exec 4<&-
ls nowhere 2> err; test -s err && echo "error text kept"
cat <<END > here
document $((1 + 2))
END
cat here
printf '%s\n' 3 1 2 | sort > sorted; cat sorted
(echo first; (echo inner; echo inner2) ; echo last) | tee copy | wc -l; cat copy
: > empty; test -s empty || echo "empty is empty"
echo keep > c; set -C; (echo no > c) 2>/dev/null || echo "noclobber holds"; cat c
(sleep 0.2; echo late) > bg & wait; cat bg
cat < f > f2; cmp f f2 && echo same
(head -n 1; cat) < g
