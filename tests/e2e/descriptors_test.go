package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"kstatd/e2e/harness"
)

// limited is a program with a limit of open files.
func limited(program harness.Program, files int) harness.Program {
	script := fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, files)
	program.Prefix = append([]string{"-c", script, program.Path}, program.Prefix...)
	program.Path = "/bin/sh"
	return program
}

// namespaces creates namespaces with a config map each, and returns their names.
func namespaces(t *testing.T, cluster *harness.Cluster, count int) []string {
	t.Helper()
	var names []string
	for i := range count {
		name := fmt.Sprintf("space-%02d", i)
		cluster.Create("configmaps", harness.Object(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: %s}}", name)))
		names = append(names, name)
	}
	return names
}

// waitSpaces waits until the config map of each namespace is exposed.
func waitSpaces(t *testing.T, exporter *harness.KubeExporter, names []string) {
	t.Helper()
	harness.Eventually(t, "every namespace is shown", func() error {
		e, err := harness.Scrape(exporter.Base+"/metrics", harness.Text)
		if err != nil {
			return err
		}
		all := strings.Join(e.Samples, "\n")
		for _, name := range names {
			if !strings.Contains(all, fmt.Sprintf(`kube_configmap_info{namespace=%q,configmap="one"}`, name)) {
				return fmt.Errorf("%s is not", name)
			}
		}
		return nil
	})
}

// TestDescriptors: the watches of many namespaces share connections, so that a
// low limit of open files leaves enough for scrapes.
func TestDescriptors(t *testing.T) {
	cluster := harness.StartCluster(t)
	names := namespaces(t, cluster, 61)
	for _, files := range []int{1024, 256, 64} {
		t.Run(fmt.Sprint(files), func(t *testing.T) {
			exporter := harness.StartKubeExporter(t, limited(harness.OurKubeStateMetrics(t), files), "--kubeconfig="+cluster.Kubeconfig, "--namespaces="+strings.Join(names, ","))
			waitSpaces(t, exporter, names)
			harness.WaitStatus(t, exporter.Process, exporter.Base+"/livez", 200)
			harness.WaitStatus(t, exporter.Process, exporter.Telemetry+"/readyz", 200)
			if open := exporter.OpenFiles(); open > 48 {
				t.Errorf("it has %d open files", open)
			}
		})
	}
}

// TestFewStreams: if a server allows few requests on a connection, more connections are opened, but not one for each
// request.
func TestFewStreams(t *testing.T) {
	cluster := harness.StartCluster(t, "--http2-max-streams-per-connection=20")
	names := namespaces(t, cluster, 10)
	exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), "--kubeconfig="+cluster.Kubeconfig, "--namespaces="+strings.Join(names, ","))
	waitSpaces(t, exporter, names)
	harness.WaitStatus(t, exporter.Process, exporter.Telemetry+"/readyz", 200)
	if open := exporter.OpenFiles(); open > 64 {
		t.Errorf("it has %d open files", open)
	}
}

// TestGoAway: a server that closes connections gracefully, as behind a load balancer, causes no failure.
func TestGoAway(t *testing.T) {
	cluster := harness.StartCluster(t, "--goaway-chance=0.02")
	cluster.Create("configmaps", configMap(t, "one"))
	exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), "--resources=configmaps", "--kubeconfig="+cluster.Kubeconfig)
	waitNames(t, exporter, "one")
	// With this many the probability of missing it is one in fifty thousand.
	for range 600 {
		answer, err := harness.Do("GET", exporter.Base+"/livez")
		if err != nil {
			t.Fatal(err)
		}
		if answer.Status != 200 {
			t.Fatalf("status %d", answer.Status)
		}
	}
	own, err := harness.Scrape(exporter.Telemetry+"/metrics", harness.Text)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range own.Samples {
		if strings.HasPrefix(line, "kstatd_kubernetes_errors_total{") && strings.Contains(line, `reason="broken"`) {
			t.Errorf("it counts as a failure: %s", line)
		}
	}
}

// TestFrozenServerIsNoticed: a server whose kernel still accepts packets while the process is frozen is considered
// down within a minute. One log line covers all kinds, each kind's counter increases, and one line reports the
// recovery.
func TestFrozenServerIsNoticed(t *testing.T) {
	t.Parallel() // it waits most of its time
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	cluster.Create("configmaps", configMap(t, "one"))
	exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), mainSlice, "--kubeconfig="+cluster.Kubeconfig)
	waitNames(t, exporter, "one")
	errors := func() int {
		e, err := harness.Scrape(exporter.Telemetry+"/metrics", harness.Text)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count("\n"+strings.Join(e.Samples, "\n"), "\nkstatd_kubernetes_errors_total{")
	}
	harness.WaitStatus(t, exporter.Process, exporter.Telemetry+"/readyz?verbose", 200)
	before := errors()
	cluster.Process().Signal(syscall.SIGSTOP)
	harness.EventuallyWithin(t, time.Minute, "each kind's errors are counted", func() error {
		if moved := errors() - before; moved < 7 {
			return fmt.Errorf("there are %d series of errors more", moved)
		}
		return nil
	})
	exporter.WaitOutput("The API server fails: nothing can be listed or watched")
	waitNames(t, exporter, "one")
	harness.WaitStatus(t, exporter.Process, exporter.Telemetry+"/readyz?verbose", 503)
	harness.WaitStatus(t, exporter.Process, exporter.Telemetry+"/readyz", 200)
	cluster.Process().Signal(syscall.SIGCONT)
	cluster.Create("configmaps", configMap(t, "two"))
	waitNames(t, exporter, "one", "two")
	harness.WaitStatus(t, exporter.Process, exporter.Telemetry+"/readyz?verbose", 200)
	exporter.WaitOutput("The API server works again: everything is listed and watched")
	for _, line := range []string{"The API server fails", "The API server works again"} {
		if count := strings.Count(exporter.Output(), line); count != 1 {
			t.Errorf("the log has %q %d times:\n%s", line, count, exporter.Output())
		}
	}
}
