package mutant

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
)

// noChance removes randomness and real time from Go's runtime, within a bubble. With one
// processor a goroutine then runs until it waits, and the next in line follows. By file
// below GOROOT/src: the text that is replaced, and what stands there instead.
var noChance = []Edit{
	// Random numbers depend on fake time and on how many were drawn at that instant: not
	// on the seed, nor on what the process did before the bubble began.
	{File: "runtime/synctest.go", Old: "\tactive  int // other sources of activity\n}\n", New: `	active  int // other sources of activity
	drawn   uint64
	drawnAt int64
}

//go:nosplit
func (b *synctestBubble) draw() uint64 {
	if b.drawnAt != b.now {
		b.drawnAt, b.drawn = b.now, 0
	}
	b.drawn++
	return b.chance(b.drawn)
}

//go:nosplit
func (b *synctestBubble) chance(n uint64) uint64 {
	x := uint64(b.now) + n*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
`},
	// math/rand, and of a select the case that is taken if several can be.
	inBubble("runtime/rand.go", "func rand() uint64 {\n", "return b.draw()"),
	{File: "runtime/select.go", Old: "\t\tj := cheaprandn(uint32(norder + 1))\n", New: `		j := cheaprandn(uint32(norder + 1))
		if gp.bubble != nil {
			j = uint32(gp.bubble.draw() % uint64(norder+1))
		}
`},
	// The order of timers that end at one instant.
	{File: "runtime/time.go", Old: "\t\t\tt.rand = cheaprand()\n", New: "\t\t\tt.rand = uint32(getg().bubble.draw())\n"},
	// The order of maps. It draws nothing: a package may make maps when it is first used.
	inBubble("runtime/rand.go", "func rand32() uint32 {\n", "return uint32(b.chance(0))"),
	inBubble("runtime/rand.go", "func maps_rand() uint64 {\n", "return b.chance(0)"),
	// A context cancels its children in the order in which they came: its map is by
	// address.
	{File: "context/context.go", Old: "\tchildren map[canceler]struct{} //", New: "\tlast     int\n\tchildren map[canceler]int //"},
	{File: "context/context.go", Old: "make(map[canceler]struct{})", New: "make(map[canceler]int)"},
	{File: "context/context.go", Old: "p.children[child] = struct{}{}", New: "p.last++\n\t\t\tp.children[child] = p.last"},
	{File: "context/context.go", Old: "\tfor child := range c.children {\n", New: "\tfor i := range c.last {\n\t\tfor child, n := range c.children {\n\t\t\tif n != i+1 {\n\t\t\t\tcontinue\n\t\t\t}\n"},
	{File: "context/context.go", Old: "\t\tchild.cancel(false, err, cause)\n\t}\n", New: "\t\t\tchild.cancel(false, err, cause)\n\t\t}\n\t}\n"},
	{File: "runtime/rand.go", Old: "\tglobalRand.state.Init(*seed)\n", New: "\tglobalRand.state.Init([32]byte{})\n"},
	// A goroutine keeps the processor for an hour, in a system call too, not for 10 ms. On
	// a busy machine 10 s were too short.
	{File: "runtime/proc.go", Old: "const forcePreemptNS = 10 * 1000 * 1000 // 10ms\n", New: "const forcePreemptNS = 3600 * 1000 * 1000 * 1000\n"},
	{File: "runtime/proc.go", Old: "!sysretake && int64(pd.syscalltick) != syst {", New: "!sysretake {"},
	// A goroutine that has yielded comes after all others that can run. Of 61 turns one would
	// be its own, counted with those of goroutines that real time wakes.
	{File: "runtime/proc.go", Old: "\tif pp.schedtick%61 == 0 && ", New: "\tif false && "},
	// A goroutine that is not of a bubble, such as the one that runs finalizers, takes no turn of those that are: one that
	// becomes ready, or begins, comes next otherwise, and whoever was next is the last then.
	{File: "runtime/proc.go", Old: "\trunqput(mp.p.ptr(), gp, next)\n", New: "\trunqput(mp.p.ptr(), gp, next && gp.bubble != nil)\n"},
	{File: "runtime/proc.go", Old: "\t\trunqput(pp, newg, true)\n", New: "\t\trunqput(pp, newg, newg.bubble != nil)\n"},
	// A mutex turns to the goroutine that has waited for more than a millisecond.
	inBubble("runtime/sema.go", "func internal_sync_nanotime() int64 {\n", "return b.now"),
}

// inBubble is a function's other beginning in a bubble b.
func inBubble(file, function, does string) Edit {
	return Edit{File: file, Old: function, New: function + "\tif b := getg().bubble; b != nil {\n\t\t" + does + "\n\t}\n"}
}

// BuildExact compiles the tests of package histories without chance and with these sources
// into dir, and returns the path of the binary.
func (s Sources) BuildExact(ctx context.Context, root, dir string) (binary string, err error) {
	env, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	version, goroot, _ := strings.Cut(strings.TrimSpace(string(env)), "\n")
	if !strings.HasPrefix(version, "go1.26") {
		return "", fmt.Errorf("exact histories need the runtime of Go 1.26, not of %s: see noChance in test/mutant/exact.go", version)
	}
	runtime := Mutant{Name: "NoChance"}
	for _, e := range noChance {
		if e.File, err = filepath.Rel(root, filepath.Join(goroot, "src", e.File)); err != nil {
			return "", err
		}
		e.File = filepath.ToSlash(e.File)
		runtime.Edits = append(runtime.Edits, e)
	}
	exact, err := runtime.Apply(root)
	if err != nil {
		return "", err
	}
	maps.Copy(exact, s)
	return filepath.Join(dir, "histories.test"), exact.BuildTests(ctx, root, dir, []string{suites[histories].Package}, "-tags=mutant",
		"-ldflags=-s -w -X github.com/quotient-limiter/quotient/test/histories.exact=yes")
}
