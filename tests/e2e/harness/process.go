package harness

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// buffer is an output that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Process is a started program. It ends with its test.
type Process struct {
	t              testing.TB
	name           string
	cmd            *exec.Cmd
	stdout, stderr buffer
	done           chan struct{}
}

// StartOptions are the settings other than arguments.
type StartOptions struct {
	// Env is added to an environment without any Kubernetes or user settings.
	Env []string
	// Dir is the working folder.
	Dir string
	// Argv0 is the name under which the program is started.
	Argv0 string
	// Root is its root folder, with User as its user and group.
	Root string
	User uint32
	// Network is its network, nil for the test's.
	Network *Network
	// Namespaces are new namespaces for it, instead of a root folder.
	Namespaces *syscall.SysProcAttr
}

// Start runs the program until the end of the test.
func Start(t testing.TB, p Program, args ...string) *Process {
	t.Helper()
	return StartWith(t, p, StartOptions{}, args...)
}

// StartWith is Start with options.
func StartWith(t testing.TB, p Program, o StartOptions, args ...string) *Process {
	t.Helper()
	proc := &Process{t: t, name: p.Name, done: make(chan struct{})}
	cmd := exec.Command(p.Path, append(append([]string{}, p.Prefix...), args...)...)
	if o.Argv0 != "" {
		cmd.Args[0] = o.Argv0
	}
	cmd.Dir = o.Dir
	// PATH for exec plugins, and HOME without a kubeconfig: the environment of the test machine must not affect results.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "TZ=UTC"}, o.Env...)
	cmd.Stdout, cmd.Stderr = &proc.stdout, &proc.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// The parent-death signal follows the forking thread, so a thread that never ends starts all processes.
	if o.Namespaces != nil {
		cmd.SysProcAttr = o.Namespaces
	}
	if o.Root != "" {
		cmd.Dir = "/"
		cmd.SysProcAttr.Chroot = o.Root
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: o.User, Gid: o.User}
	}
	start := func() {
		if err := cmd.Start(); err != nil {
			t.Errorf("start %s: %v", p.Name, err)
		}
	}
	onForkThread(func() {
		if o.Network != nil {
			o.Network.Inside(start)
		} else {
			start()
		}
	})
	if cmd.Process == nil {
		t.FailNow()
	}
	proc.cmd = cmd
	go func() {
		// The state describes the end; Wait's error repeats it.
		_ = cmd.Wait()
		close(proc.done)
	}()
	t.Cleanup(func() {
		proc.Stop()
		if t.Failed() {
			t.Logf("--- %s %s\n%s", p.Name, strings.Join(args, " "), tail(proc.Output(), 3000))
		}
	})
	return proc
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "…" + s[len(s)-n:]
}

var forks = make(chan func())

func init() {
	go func() {
		// It stays locked, also if f has locked and unlocked it.
		runtime.LockOSThread()
		for f := range forks {
			f()
		}
	}()
}

func onForkThread(f func()) {
	done := make(chan struct{})
	forks <- func() { defer close(done); f() }
	<-done
}

// Output is everything printed so far: standard error, then standard output.
func (p *Process) Output() string { return p.stderr.String() + p.stdout.String() }

// Stdout is its standard output so far.
func (p *Process) Stdout() string { return p.stdout.String() }

// Stderr is its standard error so far.
func (p *Process) Stderr() string { return p.stderr.String() }

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal, also if the process has already ended.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running tells whether it has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Exit waits for its end and returns the exit code, -1 for a signal.
func (p *Process) Exit() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(Patience):
		p.t.Fatalf("%s has not ended within %s:\n%s", p.name, Patience, tail(p.Output(), 4000))
	}
	return p.cmd.ProcessState.ExitCode()
}

// Stop ends it, first with SIGTERM.
func (p *Process) Stop() {
	if !p.Running() {
		return
	}
	p.Signal(syscall.SIGTERM)
	// A stopped process receives SIGTERM only after it is continued.
	p.Signal(syscall.SIGCONT)
	select {
	case <-p.done:
	// statsd_exporter sometimes does not end and uses a whole core until it is killed.
	case <-time.After(20 * time.Second):
		p.Signal(syscall.SIGKILL)
		<-p.done
	}
}

// WaitOutput waits until all of the texts have been printed.
func (p *Process) WaitOutput(texts ...string) {
	p.t.Helper()
	Eventually(p.t, p.name+" prints "+strings.Join(texts, ", "), func() error {
		out := p.Output()
		for _, text := range texts {
			if !strings.Contains(out, text) {
				if !p.Running() {
					return fmt.Errorf("it has ended without %q:\n%s", text, tail(out, 4000))
				}
				return fmt.Errorf("%q is not in\n%s", text, tail(out, 4000))
			}
		}
		return nil
	})
}

// Run starts the program, waits for its end and returns exit code and output.
func Run(t testing.TB, p Program, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(p.Path, append(append([]string{}, p.Prefix...), args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "TZ=UTC"}
	cmd.Stdin = strings.NewReader(stdin)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	timer := time.AfterFunc(Patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if e := cmd.Run(); e != nil && cmd.ProcessState == nil {
		t.Fatalf("run %s: %v", p.Name, e)
	}
	return cmd.ProcessState.ExitCode(), out.String(), err.String()
}

// Freeze stops it, and waits until it is stopped.
func (p *Process) Freeze() {
	p.t.Helper()
	p.Signal(syscall.SIGSTOP)
	Eventually(p.t, p.name+" stands still", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
		if err != nil {
			return err
		}
		// The state follows the name in parentheses.
		if _, rest, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(rest, "T") {
			return fmt.Errorf("its state is %.1s", rest)
		}
		return nil
	})
}

// OpenFiles counts its open descriptors.
func (p *Process) OpenFiles() int {
	p.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Pid()))
	if err != nil {
		p.t.Fatal(err)
	}
	return len(entries)
}

// LimitFiles sets its limit of open files.
func (p *Process) LimitFiles(limit uint64) {
	p.t.Helper()
	if err := unix.Prlimit(p.Pid(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}, nil); err != nil {
		p.t.Fatal(err)
	}
}
