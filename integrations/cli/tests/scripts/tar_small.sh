cd "$D" || exit 1
mkdir -p src/d1/d2; for i in 1 2 3 4 5 6 7 8; do head -c $((i * 3000)) /dev/zero | tr '\0' "$i" > src/d1/f$i; done; ln -s d1/f1 src/link; ln src/d1/f2 src/hard; chmod 700 src/d1/d2; : > src/empty
find src -exec touch -h -d '2020-01-01 UTC' {} +
tar cf a.tar --sort=name --owner=0 --group=0 src; sha256sum < a.tar
mkdir out; tar xf a.tar -C out; diff -r src out/src && echo equal
tar cf b.tar --sort=name --owner=0 --group=0 -C out src; cmp a.tar b.tar && echo bit-identical
tar czf c.tgz src && tar tzf c.tgz | wc -l; gzip -k a.tar; gunzip -c a.tar.gz | cmp - a.tar && echo gz
tar rf a.tar -C out src/empty; tar tf a.tar | tail -1; tar df b.tar -C out && echo tar agrees
