# needs: go
# A program of Go, which makes its system calls by itself: built outside, run on the directory and from there; built here.
cd "$D" || exit 1
export HOME="$T" GOPATH="$T/go" GOCACHE="$C/go" GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0 GOPROXY=off GOTELEMETRY=off
mkdir -p "$T/m"; printf 'module m\n\ngo 1.18\n' > "$T/m/go.mod"
cat > "$T/m/main.go" <<'END'
package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	root := os.Args[1]
	check(os.MkdirAll(filepath.Join(root, "t/a"), 0o755))
	var group sync.WaitGroup
	for n := 0; n < 100; n++ {
		group.Add(1)
		go func(n int) {
			defer group.Done()
			check(os.WriteFile(filepath.Join(root, "t/a", fmt.Sprint(n)), make([]byte, n*100), 0o644))
		}(n)
	}
	group.Wait()
	var names, bytes int64
	check(filepath.Walk(filepath.Join(root, "t"), func(_ string, info os.FileInfo, err error) error {
		check(err)
		if info.Mode().IsRegular() {
			names++
			bytes += info.Size()
		}
		return nil
	}))
	fmt.Println(names, bytes)
	file, err := os.OpenFile(filepath.Join(root, "mapped"), os.O_RDWR|os.O_CREATE, 0o600)
	check(err)
	check(file.Truncate(1 << 16))
	memory, err := syscall.Mmap(int(file.Fd()), 0, 1<<16, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	check(err)
	copy(memory[100:], "mapped")
	check(syscall.Munmap(memory))
	check(file.Sync())
	part := make([]byte, 6)
	_, err = file.ReadAt(part, 100)
	check(err)
	fmt.Println(string(part))
	check(syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	fmt.Println(exec.Command("flock", "-n", file.Name(), "true").Run() != nil)
	check(os.Rename(file.Name(), filepath.Join(root, "moved")))
	data, err := os.ReadFile(filepath.Join(root, "moved"))
	check(err)
	fmt.Printf("%x\n", sha256.Sum256(data))
	check(os.RemoveAll(filepath.Join(root, "t")))
}
END
(cd "$T/m" && go build -o "$T/program" .) || exit 1
"$T/program" "$D"; echo "outside: $?"
cp "$T/program" program; ./program "$D"; echo "inside: $?"; rm -f moved
cp -r "$T/m" m && (cd m && go vet . && go build -o ../built . && go run . "$D"); ./built "$D" | head -n 1; ls
