module cadvisor

go 1.26.0

require github.com/google/cadvisor v0.53.0

require (
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/mistifyio/go-zfs v2.1.1+incompatible // indirect
	github.com/moby/sys/mountinfo v0.7.2 // indirect
	golang.org/x/sys v0.33.0 // indirect
	k8s.io/klog/v2 v2.130.1 // indirect
)
