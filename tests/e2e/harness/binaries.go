// Package harness starts the programs under test and uses them as their users do: argv, HTTP, UDP, TCP and unix
// sockets. It is independent of kstatd's implementation.
package harness

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Program is an executable with leading arguments.
type Program struct {
	// Name is used in test output.
	Name string
	// Path is the executable.
	Path string
	// Prefix are leading arguments, such as a subcommand.
	Prefix []string
	// native is true for kstatd under its own name.
	native bool
}

// root is the root of the repository.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// RepoFile is the absolute path of a file of the repository.
func RepoFile(parts ...string) string {
	return filepath.Join(append([]string{root()}, parts...)...)
}

// locate takes the path from the environment or the default location, and fails the test if it does not exist: a
// missing program must not look like a pass.
func locate(t testing.TB, variable, fallback string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		path = RepoFile(fallback)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s: %v (set %s, or build it: see tests/README.md)", variable, err, variable)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// Kstatd is the program under test.
func Kstatd(t testing.TB) Program {
	t.Helper()
	return Program{Name: "kstatd", Path: locate(t, "KSTATD_BIN", "target/debug/kstatd")}
}

// KstatdWithDemo is a program with the simulated cluster, which shipped programs lack.
func KstatdWithDemo(t testing.TB) Program {
	t.Helper()
	p := Kstatd(t)
	if os.Getenv("KSTATD_DEMO_BIN") != "" {
		p.Path = locate(t, "KSTATD_DEMO_BIN", "")
	}
	return p
}

// selfCheck runs the originals on both sides, which shows that the suite itself reports no differences.
func selfCheck() bool { return os.Getenv("E2E_SELF_CHECK") == "1" }

// NotInSelfCheck skips a test of features that only kstatd has.
func NotInSelfCheck(t testing.TB) {
	t.Helper()
	if selfCheck() {
		t.Skip("the harness checks itself with the originals")
	}
}

// KubeStateMetrics is the original.
func KubeStateMetrics(t testing.TB) Program {
	t.Helper()
	return Program{Name: "kube-state-metrics", Path: locate(t, "KSM_BIN", "tests/.bin/kube-state-metrics")}
}

// StatsdExporter is the original.
func StatsdExporter(t testing.TB) Program {
	t.Helper()
	return Program{Name: "statsd_exporter", Path: locate(t, "STATSD_EXPORTER_BIN", "tests/.bin/statsd_exporter")}
}

// OurKubeStateMetrics is kstatd in its kube-state-metrics personality.
func OurKubeStateMetrics(t testing.TB) Program {
	t.Helper()
	if selfCheck() {
		return KubeStateMetrics(t)
	}
	p := Kstatd(t)
	p.Name, p.Prefix = "kstatd kube-state-metrics", []string{"kube-state-metrics"}
	return p
}

// OurStatsdExporter is kstatd in its statsd_exporter personality.
func OurStatsdExporter(t testing.TB) Program {
	t.Helper()
	if selfCheck() {
		return StatsdExporter(t)
	}
	p := Kstatd(t)
	p.Name, p.Prefix = "kstatd statsd_exporter", []string{"statsd_exporter"}
	return p
}

// KstatdRun is kstatd under its own name.
func KstatdRun(t testing.TB) Program {
	t.Helper()
	p := Kstatd(t)
	p.Name, p.Prefix, p.native = "kstatd run", []string{"run"}, true
	return p
}

// Previous is the same personality of the previous release, which tests/build-previous.sh builds.
func Previous(t testing.TB, p Program) Program {
	t.Helper()
	p.Path = locate(t, "KSTATD_PREVIOUS_BIN", "tests/.bin/kstatd-previous")
	p.Name += " (previous release)"
	return p
}

// APIServer is the real kube-apiserver with its etcd in one process.
func APIServer(t testing.TB) Program {
	t.Helper()
	return Program{Name: "kapi", Path: locate(t, "KAPI_BIN", "tests/.bin/kapi")}
}

// Tool is a program that tests/build-peers.sh builds for deploy/.
func Tool(t testing.TB, name string) string {
	t.Helper()
	return locate(t, strings.ToUpper(name)+"_BIN", "tests/.bin/"+name)
}
