# Programs that lie in the device: scripts and binaries.
cd "$D" || exit 1
printf '#!/bin/sh\necho "script $0 $*" | sed "s|$D|D|"\n' > s; chmod +x s; ./s 1 2; "$D/s" 3
cp /bin/echo e; ./e binary runs; printf 'echo no shebang "$1"\n' > n; chmod +x n; ./n here
chmod -x s; ./s 2>/dev/null || echo "not executable: $?"
PATH="$D:$PATH"; chmod +x s; s found | sed "s|$D|D|"
env ./e through env; find . -name e -exec {} from find \; ; echo a | xargs ./e
