cd "$D" || exit 1
for i in 1 2 3 4 5 6 7 8 9; do mkdir -p t/$i/sub; for j in 1 2 3 4 5 6 7 8 9 10; do echo "line $i $j" > t/$i/sub/f$j.txt; done; done
find t -type f | wc -l; find t -name 'f1*.txt' | sort | head -4; find t -type d -name sub -print0 | xargs -0 -n 2 echo | wc -l
find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum
grep -r 'line 3' t | wc -l; grep -l 'line 5 7' -r t; grep -c line t/1/sub/f1.txt; grep -q zzz -r t || echo none
find t -type f -size -2 -newermt '2000-01-01' | wc -l; find t -name 'f9.txt' -exec cat {} + | sort; find t -name 'f10.txt' -execdir cat f10.txt \; | sort | tail -1
find t -name 'f2.txt' -delete; find t -type f | wc -l; find "$D/t/1" -printf '%P %y\n' | sort
ls -R t | wc -l; sort -r t/*/sub/f1.txt | head -2; cat t/*/sub/*.txt | sort | uniq | wc -l
sed -i 's/line/LINE/' t/1/sub/f1.txt; cat t/1/sub/f1.txt; awk '{s+=$3} END {print s}' t/*/sub/f3.txt
find t -depth -type d -empty | wc -l; rm -rf t; find . | wc -l
