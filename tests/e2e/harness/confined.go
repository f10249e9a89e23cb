package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Confinement describes the restrictions that a container engine applies to a process, as far as a user namespace
// allows.
type Confinement struct {
	// Root is the image's folder, mounted read-only.
	Root string
	// Binds are folders or files mounted read-only, by their paths in the image.
	Binds map[string]string
	// User and group of the process.
	User int
	// Capabilities are its capabilities by number; it cannot gain others.
	Capabilities []int
	// Args and Env are those of the program.
	Args, Env []string
}

// confined is the variable that makes this process confine itself; it holds a Confinement.
const confined = "E2E_CONFINED"

// refused are system calls that the default profile of container engines denies to a process without the required
// capability (docs.docker.com/engine/security/seccomp, "Significant syscalls blocked by the default profile"). It is
// not the profile itself, which lists allowed calls.
var refused = []uint32{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_BPF, unix.SYS_CLOCK_ADJTIME, unix.SYS_CLOCK_SETTIME, unix.SYS_DELETE_MODULE,
	unix.SYS_FINIT_MODULE, unix.SYS_GET_MEMPOLICY, unix.SYS_INIT_MODULE, unix.SYS_KCMP, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEYCTL, unix.SYS_MBIND, unix.SYS_MOUNT, unix.SYS_MOVE_PAGES, unix.SYS_NFSSERVCTL,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_PERF_EVENT_OPEN, unix.SYS_PERSONALITY, unix.SYS_PIVOT_ROOT,
	unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PTRACE, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_REBOOT, unix.SYS_REQUEST_KEY, unix.SYS_SET_MEMPOLICY, unix.SYS_SETNS, unix.SYS_SETTIMEOFDAY,
	unix.SYS_SWAPOFF, unix.SYS_SWAPON, unix.SYS_UMOUNT2, unix.SYS_UNSHARE, unix.SYS_USERFAULTFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

func init() {
	text, found := os.LookupEnv(confined)
	if !found {
		return
	}
	var c Confinement
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.enter()
	}
	fmt.Fprintln(os.Stderr, "cannot be confined:", err)
	os.Exit(125)
}

// enter executes the program in the current namespaces.
func (c Confinement) enter() error {
	// Credentials belong to a thread until exec.
	runtime.LockOSThread()
	bind := func(from, to string) error {
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", from, to, err)
		}
		// Existing mount flags may not be removed.
		var of unix.Statfs_t
		if err := unix.Statfs(to, &of); err != nil {
			return err
		}
		kept := uintptr(of.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
		if err := unix.Mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|kept, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", to, err)
		}
		return nil
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := bind(c.Root, c.Root); err != nil {
		return err
	}
	for to, from := range c.Binds {
		if err := bind(from, filepath.Join(c.Root, to)); err != nil {
			return err
		}
	}
	if err := unix.Chroot(c.Root); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	var kept uint32
	for capability := range unix.CAP_LAST_CAP + 1 {
		if slices.Contains(c.Capabilities, capability) {
			kept |= 1 << capability
		} else if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
		user := uintptr(c.User)
		if _, _, errno := unix.RawSyscall(call, user, user, user); errno != 0 {
			return fmt.Errorf("become user %d: %w", c.User, errno)
		}
	}
	// As in container engines: neither inheritable nor ambient.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{}
	if c.User == 0 {
		data[0] = unix.CapUserData{Effective: kept, Permitted: kept}
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("keep capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := refuse(); err != nil {
		return fmt.Errorf("refuse system calls: %w", err)
	}
	return unix.Exec(c.Args[0], c.Args, c.Env)
}

// refuse makes those system calls fail with EPERM.
func refuse() error {
	// struct seccomp_data begins with the number of the call.
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	for i, call := range refused {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(refused) - i), K: call})
	}
	filter = append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}

// Folder is the image's root.
func (i *Image) Folder() string { return i.root }

// Place creates a mount point like `from` at a path of the image.
func (i *Image) Place(path, from string) {
	i.t.Helper()
	of, err := os.Stat(from)
	if err != nil {
		i.t.Fatal(err)
	}
	if !of.IsDir() {
		i.Mount(path, "")
	} else if err := os.MkdirAll(filepath.Join(i.root, path), 0o755); err != nil {
		i.t.Fatal(err)
	}
}

// NeedUserNamespace skips a test if no user namespace with the users 0 to 65535 can be created.
func NeedUserNamespace(t testing.TB) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.SysProcAttr = userNamespace()
	if err := cmd.Run(); err != nil {
		t.Skipf("not started as the manifest says, as there is no user namespace here: %v", err)
	}
}

func userNamespace() *syscall.SysProcAttr {
	all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536}}
	return &syscall.SysProcAttr{
		Cloneflags:                 syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings:                all,
		GidMappings:                all,
		GidMappingsEnableSetgroups: true,
		Pdeathsig:                  syscall.SIGKILL,
	}
}

// RunConfined starts the program in a new user namespace, and in the network.
func (i *Image) RunConfined(network *Network, c Confinement) *Process {
	i.t.Helper()
	c.Root = i.root
	c.Env = append([]string{"PATH=/", "HOME=/nonexistent"}, c.Env...)
	for to, from := range c.Binds {
		i.Place(to, from)
	}
	text, err := json.Marshal(c)
	if err != nil {
		i.t.Fatal(err)
	}
	program := Program{Name: strings.TrimPrefix(c.Args[0], "/"), Path: "/proc/self/exe"}
	return StartWith(i.t, program, StartOptions{Env: []string{confined + "=" + string(text)}, Network: network, Namespaces: userNamespace()})
}
