bash -c '
cd "$D" || exit 1
echo hi > a; mapfile -t lines < a; echo "${lines[0]}"
printf "%s\n" {1..2000} > many; wc -l < many
exec 5<>rw; echo written >&5; exec 5>&-; cat rw
[[ -f a && -r a && ! -d a && -s a ]] && echo tests
[[ many -nt nowhere ]] && echo newer
shopt -s nullglob; touch x1.t x2.t; echo *.t; echo [a]*; echo */
cat <<< "string" > hs; cat hs
read -r w < a; echo "$w"
diff <(sort -n many) <(sort -rn many | tac) && echo procsub
{ echo out; echo err >&2; } > o 2> e; cat o e
echo builtin output $(< a)
pushd / > /dev/null; popd > /dev/null; pwd | sed "s|^$D|D|"
mkdir -p s/t; cd s/t; cd ..; cd -  > /dev/null; cd ../..; [ "$PWD" = "$D" ] && echo back
trap "echo bye > trapfile" EXIT
'
cat "$D/trapfile"
