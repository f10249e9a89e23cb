//go:build !oldest

package main

import (
	"context"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// run serves until the context ends.
func run(ctx context.Context, s *options.ServerRunOptions) error {
	check(s.GenericServerRunOptions.ComponentGlobalsRegistry.Set())
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	check(logsapi.ValidateAndApply(s.Logs, utilfeature.DefaultFeatureGate))
	completed, err := s.Complete(ctx)
	check(err)
	check(utilerrors.NewAggregate(completed.Validate()))
	return app.Run(ctx, completed)
}

// listen sets where etcd listens and what it advertises.
func listen(cfg *embed.Config, client, peer url.URL, nominal []url.URL) {
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, nominal
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, nominal
}
