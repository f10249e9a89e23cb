package e2e

import (
	"fmt"
	"testing"

	"kstatd/e2e/harness"
)

// TestAuthorisation asks both listeners with tokens of accounts that may do this
// and that, beside the original.
func TestAuthorisation(t *testing.T) {
	cluster := harness.StartCluster(t)
	tokens := map[string]string{
		"admin":   harness.AdminToken,
		"metrics": cluster.ServiceAccountToken("metrics", `[{nonResourceURLs: ["/metrics"], verbs: [get]}]`),
		"debug":   cluster.ServiceAccountToken("debug", `[{nonResourceURLs: ["/debug/*"], verbs: [get]}]`),
		"none":    cluster.ServiceAccountToken("none", `[]`),
		"garbage": "garbage",
	}
	pair := harness.StartPair(t, "--kubeconfig="+cluster.Kubeconfig, "--resources=configmaps", "--auth-filter")
	for _, request := range []struct {
		path      string
		telemetry bool
	}{{"/metrics", false}, {"/metrics", true}, {"/healthz", false}, {"/livez", false}, {"/readyz", true}, {"/debug/pprof/cmdline", true}, {"/debug/pprof/absent", true}, {"/nothing", false}} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			for name, token := range tokens {
				t.Run(fmt.Sprint(method, " ", request.path, " ", request.telemetry, " ", name), func(t *testing.T) {
					ask := func(side *harness.KubeExporter) string {
						base := side.Base
						if request.telemetry {
							base = side.Telemetry
						}
						resp, err := harness.Do(method, base+request.path, "Authorization", "Bearer "+token)
						if err != nil {
							t.Fatal(err)
						}
						body := resp.Body
						if resp.Status == 200 {
							body = ""
						}
						return fmt.Sprintf("%d %q", resp.Status, body)
					}
					if ours, theirs := ask(pair.Ours), ask(pair.Theirs); ours != theirs {
						t.Errorf("ours %s, theirs %s", ours, theirs)
					}
				})
			}
			resp, err := harness.Do(method, pair.Ours.Base+"/metrics")
			if err != nil || resp.Status != 401 {
				t.Errorf("%s without a token: %d %v", method, resp.Status, err)
			}
		}
	}
}
