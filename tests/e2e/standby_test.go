package e2e

import (
	"fmt"
	"strings"
	"testing"

	"kstatd/e2e/harness"
)

// TestStandbyNames has replicas that find each other by name. While the name server fails, is silent or denies the name,
// they keep the addresses that they know and report it; afterwards they follow the name to another address.
func TestStandbyNames(t *testing.T) {
	harness.NotInSelfCheck(t)
	const name = "replicas.example"
	names := harness.StartNameServer(t, "127.0.0.3")
	telemetry := harness.FreePort(t)
	start := func(program harness.Program, host, peer string) (*harness.Process, string) {
		main := harness.FreePort(t)
		process := harness.Start(t, program, fmt.Sprintf("--listen=127.0.0.1:%d", main), fmt.Sprintf("--telemetry-listen=%s:%d", host, telemetry),
			"--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp=", "--standby", fmt.Sprintf("--standby-peers=%s:%d,%s:%d", host, telemetry, peer, telemetry))
		base := fmt.Sprintf("http://127.0.0.1:%d", main)
		harness.WaitStatus(t, process, base+"/readyz", 200)
		return process, base
	}
	own := func(host string) (harness.Exposition, error) {
		return harness.Scrape(fmt.Sprintf("http://%s:%d/metrics", host, telemetry), harness.Text)
	}
	wait := func(host, series, want string) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("%s of %s is %s", series, host, want), func() error {
			exposition, err := own(host)
			if got, _ := exposition.Value(series); err == nil && got != want {
				err = fmt.Errorf("it is %q", got)
			}
			return err
		})
	}
	up := func(host string) string {
		return fmt.Sprintf("kstatd_standby_peer_up{peer=\"%s:%d\"}", host, telemetry)
	}
	program := harness.KstatdRun(t)
	_, base := start(names.For(program), "127.0.0.2", name)
	wait("127.0.0.2", "kstatd_standby", "0")
	second, _ := start(program, "127.0.0.3", "127.0.0.2")
	wait("127.0.0.2", up("127.0.0.3"), "1")
	wait("127.0.0.3", "kstatd_standby", "1")
	for _, fail := range []func(){names.Fails, names.Silent, names.Unknown} {
		fail()
		asked := names.Asked()
		harness.Eventually(t, "the status reports the name, after several look-ups", func() error {
			status, err := harness.Get(base + "/status")
			if want := fmt.Sprintf("%s:%d cannot be looked up", name, telemetry); err == nil && !strings.Contains(status.Body, want) {
				err = fmt.Errorf("%q is not in the status", want)
			}
			if got := names.Asked() - asked; err == nil && got < 4 {
				err = fmt.Errorf("asked %d times", got)
			}
			return err
		})
		for series, want := range map[string]string{"kstatd_standby": "0", up("127.0.0.3"): "1", up(name): "0"} {
			wait("127.0.0.2", series, want)
		}
		wait("127.0.0.3", "kstatd_standby", "1")
	}
	second.Stop()
	start(program, "127.0.0.4", "127.0.0.2")
	names.Is("127.0.0.4")
	wait("127.0.0.2", up("127.0.0.4"), "1")
	wait("127.0.0.4", "kstatd_standby", "1")
	if exposition, err := own("127.0.0.2"); err != nil {
		t.Error(err)
	} else if value, found := exposition.Value(up("127.0.0.3")); found {
		t.Errorf("the address that the name no longer has: %s", value)
	}
}
