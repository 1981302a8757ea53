# needs: rsync
# Into the directory, out of it and inside of it: links, holes, times, deletions, nothing copied twice.
cd "$D" || exit 1
mkdir -p "$T/src/a/b" "$T/back"
for i in $(seq 60); do head -c $((i * 997)) /dev/zero | tr '\0' "$((i % 10))" > "$T/src/a/f$i"; done
(cd "$T/src" && ln a/f1 hard && ln -s a/f2 soft && truncate -s 4M a/b/holes && echo end >> a/b/holes && chmod 640 a/f3)
find "$T/src" -exec touch -h -d '2021-03-04 05:06:07.089 UTC' {} +
rsync -aH --sparse "$T/src/" in/; diff -r "$T/src" in && echo there
stat -c '%h %a %Y' in/hard in/a/f3; readlink in/soft; test "$(stat -c %b in/a/b/holes)" -lt 200 && echo holes
rsync -aHic "$T/src/" in/; echo "nothing left to copy"
rsync -aH in/ copy/; rsync -aHc --dry-run -i in/ copy/; rsync -aH copy/ "$T/back/"; diff -r "$T/back" in && echo back
echo changed >> in/a/f5; rm in/a/f6 in/soft; mkdir in/new
rsync -a --delete --itemize-changes in/ copy/ | sort; diff -r in copy && echo deleted
head -c 3000000 /dev/urandom > big; rsync big copy/; echo tail >> big
rsync --inplace --no-whole-file big copy/big; cmp big copy/big && echo inplace
rsync --append big copy/big && rsync --partial --backup --suffix=.old in/a/f5 copy/a/f7; ls copy/a | grep -c '\.old'
rsync -a --link-dest="$D/in" in/ linked/; test in/a/f1 -ef linked/a/f1 && echo linked
