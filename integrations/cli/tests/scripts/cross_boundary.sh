# Between the device and the host, and from one to the other by `..`
H=$(mktemp -d /tmp/cross.XXXXXX); cd "$D" || exit 1
echo inside > f; cp f "$H/f"; cat "$H/f"; mv f "$H/moved"; test -e f || echo moved out; mv "$H/moved" back; cat back
ln back "$H/link" 2>/dev/null || ln -s x y
mkdir d; echo t > d/t; cp -r d "$H/"; cat "$H/d/t"; mv "$H/d" dd; ls dd
cd "$H"; echo host > h; cat h; cat "$D/back"; cp h "$D/"; cat "$D/h"; pwd | grep -c cross
cd "$D"; cat "$H/h"; ln -s "$H/h" tohost; cat tohost
cat "$H/../$(basename "$H")/h"
cmp h "$H/h" && echo same
rm -r "$H"
