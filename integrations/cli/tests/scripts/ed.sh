# needs: ed
cd "$D" || exit 1
seq 1 500 > f
ed -s f <<'END'
1,10d
g/5$/s/$/ five/
$a
the last
.
w
w other
r !echo from a command
1,3p
Q
END
ed f <<'END'
/the last/d
u
1,2W other
e other
=
f third
w
q
END
sha256sum < f; wc -l f other third | head -3; printf '1d\nwq\n' | ed -s third; head -n 1 third
mkdir d; printf 'w d\nq\n' | ed -s f 2>&1; echo "exit $?"; diff -e f other > script; (cat script; echo w) | ed -s f; cmp f other && echo patched
