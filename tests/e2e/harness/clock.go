package harness

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// JumpClock shifts the wall clock that one process sees: programs read the time from a page that the kernel maps into
// each process (the vDSO), and its code is replaced. Kernel timers and monotonic clocks are unaffected.
func (p *Process) JumpClock(t testing.TB, wrong time.Duration) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Fatalf("the clock of a process can be set on amd64 alone")
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.Pid()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	begin, end := vdso(t, p.Pid())
	page := make([]byte, end-begin)
	if _, err := memory.ReadAt(page, begin); err != nil {
		t.Fatal(err)
	}
	object, err := elf.NewFile(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := object.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	// No thread may be executing the replaced code.
	Eventually(t, "no thread asks for the time", func() error {
		p.Freeze()
		for _, at := range counters(t, p.Pid()) {
			if at >= begin && at < end {
				p.Signal(syscall.SIGCONT)
				return fmt.Errorf("one does")
			}
		}
		return nil
	})
	defer p.Signal(syscall.SIGCONT)
	for name, code := range map[string][]byte{
		"__vdso_clock_gettime": clockGettime(int64(wrong / time.Second)),
		"__vdso_gettimeofday":  gettimeofday(int64(wrong / time.Second)),
	} {
		var found bool
		for _, symbol := range symbols {
			if symbol.Name != name {
				continue
			}
			if symbol.Size < uint64(len(code)) {
				t.Fatalf("%s has %d bytes", name, symbol.Size)
			}
			if _, err := memory.WriteAt(code, begin+int64(symbol.Value)); err != nil {
				t.Fatal(err)
			}
			found = true
		}
		if !found {
			t.Fatalf("there is no %s", name)
		}
	}
}

// vdso returns the location of the page in a process.
func vdso(t testing.TB, pid int) (begin, end int64) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			if _, err := fmt.Sscanf(line, "%x-%x", &begin, &end); err != nil {
				t.Fatal(err)
			}
			return begin, end
		}
	}
	t.Fatalf("process %d has no vDSO", pid)
	return 0, 0
}

// counters are the program counters of all threads of a stopped process, except those in the kernel.
func counters(t testing.TB, pid int) []int64 {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all []int64
	for _, task := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/syscall", pid, task.Name()))
		if err != nil {
			t.Fatal(err)
		}
		// The last word is the program counter, also outside of a system call.
		words := strings.Fields(string(text))
		var at int64
		if _, err := fmt.Sscanf(words[len(words)-1], "0x%x", &at); err == nil {
			all = append(all, at)
		}
	}
	return all
}

// clockGettime calls the kernel and adds seconds to CLOCK_REALTIME and CLOCK_REALTIME_COARSE.
func clockGettime(seconds int64) []byte {
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi
		0x74, 5, // je add
		0x83, 0xff, 5, // cmp edi, CLOCK_REALTIME_COARSE
		0x75, 13, // jne out
		0x48, 0xb9, // add: mov rcx, seconds
	}
	code = binary.LittleEndian.AppendUint64(code, uint64(seconds))
	return append(code, 0x48, 0x01, 0x0e /* add [rsi], rcx */, 0xc3 /* out: ret */)
}

// gettimeofday calls the kernel and adds seconds.
func gettimeofday(seconds int64) []byte {
	code := []byte{
		0xb8, 96, 0, 0, 0, // mov eax, gettimeofday
		0x0f, 0x05, // syscall
		0x48, 0x85, 0xff, // test rdi, rdi
		0x74, 13, // je out
		0x48, 0xb9, // mov rcx, seconds
	}
	code = binary.LittleEndian.AppendUint64(code, uint64(seconds))
	return append(code, 0x48, 0x01, 0x0f /* add [rdi], rcx */, 0xc3 /* out: ret */)
}
