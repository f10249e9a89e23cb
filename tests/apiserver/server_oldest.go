//go:build oldest

// The modules are those of oldest.mod: of the oldest release that the end-to-end tests cover.

package main

import (
	"context"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// Tests refuse streaming lists, which this release does not have.
func init() {
	check(utilfeature.DefaultMutableFeatureGate.Add(map[featuregate.Feature]featuregate.FeatureSpec{"WatchList": {}}))
}

// run serves until the context ends.
func run(ctx context.Context, s *options.ServerRunOptions) error {
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	check(logsapi.ValidateAndApply(s.Logs, utilfeature.DefaultFeatureGate))
	completed, err := app.Complete(s)
	check(err)
	check(utilerrors.NewAggregate(completed.Validate()))
	return app.Run(completed, ctx.Done())
}

// listen sets where etcd listens and what it advertises.
func listen(cfg *embed.Config, client, peer url.URL, nominal []url.URL) {
	cfg.LCUrls, cfg.ACUrls = []url.URL{client}, nominal
	cfg.LPUrls, cfg.APUrls = []url.URL{peer}, nominal
}
