package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"
)

// TestAuthorisation compares both listeners with the original's, for tokens with different permissions.
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

// TestAuthorisedNamespaces: a caller that may not scrape everything gets the metrics of exactly the namespaces
// that the API server grants.
func TestAuthorisedNamespaces(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	for _, namespace := range []string{"mine", "too", "other"} {
		cluster.Create("configmaps", harness.Object(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: %s}}", namespace)))
	}
	cluster.Create("clusterroles", harness.Object(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: see-metrics},
rules: [{apiGroups: [metrics.k8s.io], resources: [pods], verbs: [get]}]}`))
	tenant, all := cluster.ServiceAccountToken("tenant", `[]`), cluster.ServiceAccountToken("all", `[{nonResourceURLs: ["/metrics"], verbs: [get]}]`)
	for _, namespace := range []string{"mine", "too"} {
		cluster.Create("rolebindings", harness.Object(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: see-metrics}
subjects: [{kind: ServiceAccount, name: tenant, namespace: e2e-access}]
`, namespace)))
	}
	exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), "--kubeconfig="+cluster.Kubeconfig, "--resources=configmaps,namespaces", "--namespaces=mine,too,other", "--auth-filter")
	ask := func(base, query, token string) harness.Response {
		resp, err := harness.Do("GET", base+"/metrics"+query, "Authorization", "Bearer "+token)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	harness.Eventually(t, "everything is listed", func() error {
		resp := ask(exporter.Base, "", all)
		for _, part := range []string{`namespace="mine"`, `namespace="too"`, `namespace="other"`, "kube_namespace_created"} {
			if !strings.Contains(resp.Body, part) {
				return fmt.Errorf("no %s", part)
			}
		}
		return nil
	})
	const user = "system:serviceaccount:e2e-access:tenant"
	for _, test := range []struct {
		query, token string
		status       int
		body         string
		shows        []string
	}{
		{"", tenant, 403, "Authorization denied for user " + user + "\n", nil},
		{"?namespace=mine", tenant, 200, "", []string{"mine"}},
		{"?namespace=mine,too", tenant, 200, "", []string{"mine", "too"}},
		{"?namespace=other", tenant, 403, "Authorization denied for user " + user + " in other\n", nil},
		{"?namespace=mine&namespace=other,absent", tenant, 403, "Authorization denied for user " + user + " in absent, other\n", nil},
		{"?namespace=Mine", tenant, 403, "Authorization denied for user " + user + "\n", nil},
		{"?namespace=Mine", all, 400, "", nil},
		{"?namespace=other,mine", all, 200, "", []string{"mine", "other"}},
		{"?namespace=mine", "garbage", 500, "Authentication failed\n", nil},
	} {
		for _, base := range []string{exporter.Base, exporter.Telemetry} {
			resp := ask(base, test.query, test.token)
			if resp.Status != test.status || test.body != "" && resp.Body != test.body {
				t.Errorf("%s%s: %d %q, it should be %d %q", base, test.query, resp.Status, resp.Body, test.status, test.body)
			}
			if test.status != 200 {
				continue
			}
			for _, namespace := range []string{"mine", "too", "other"} {
				shown := strings.Contains(resp.Body, fmt.Sprintf("namespace=%q", namespace))
				if shown != slices.Contains(test.shows, namespace) {
					t.Errorf("%s%s: %s is shown: %v", base, test.query, namespace, shown)
				}
			}
			if strings.Contains(resp.Body, "kube_namespace_") || strings.Contains(resp.Body, "process_") {
				t.Errorf("%s%s shows what is of no namespace", base, test.query)
			}
		}
	}
}
