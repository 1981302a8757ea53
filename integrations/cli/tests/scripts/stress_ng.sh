# needs: stress-ng
# Every stressor of files at once, each with one worker, each checking what it does.
cd "$D" || exit 1
seconds=${WELDFS_STRESS_SECONDS:-60}
for name in access chmod copy-file dentry dir dirdeep dirmany dup fallocate fcntl filename flock fpunch fstat getdent hdd \
    iomix lease link locka lockf lockofd mmap open readahead rename revio seek sync-file symlink touch utime xattr; do
    set -- "$@" --$name 1
done
stress-ng --temp-path "$D" --timeout "${seconds}s" --verify --hdd-bytes 16m --iomix-bytes 16m --fallocate-bytes 8m \
    --sync-file-bytes 2m --readahead-bytes 8m --mmap-file --mmap-bytes 4m --seek-size 4m \
    --revio-bytes 8m --log-brief --quiet "$@" > "$T/out" 2>&1
code=$?; grep -i 'fail\|error\|unsuccess\|range' "$T/out"; ls -A; exit $code
