package main

import (
	"context"
	"log"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// quiet is how long nothing may happen before a rollout counts as complete.
const quiet = 4 * time.Second

// event is a change of an object.
type event struct {
	kind     apiwatch.EventType
	resource string
	object   metav1.Object
	version  uint64
}

// watcher collects the events of all recorded resources.
type watcher struct {
	mutex  sync.Mutex
	events []event
	last   time.Time
	// Number of events at the start of each rollout.
	marks []int
}

// watch starts a watch of each recorded resource.
func watch(ctx context.Context, client *kubernetes.Clientset) *watcher {
	w := &watcher{}
	core := client.CoreV1().RESTClient()
	for resource, rest := range map[string]rest.Interface{
		"configmaps": core, "endpoints": core, "namespaces": core, "nodes": core, "pods": core, "serviceaccounts": core, "services": core,
		"deployments": client.AppsV1().RESTClient(), "replicasets": client.AppsV1().RESTClient(),
		"horizontalpodautoscalers": client.AutoscalingV2().RESTClient(), "poddisruptionbudgets": client.PolicyV1().RESTClient(),
	} {
		scope := namespace
		if resource == "nodes" || resource == "namespaces" {
			scope = ""
		}
		list := cache.NewListWatchFromClient(rest, resource, scope, fields.Everything())
		present, err := list.ListWithContext(ctx, metav1.ListOptions{})
		check(err)
		check(meta.EachListItem(present, func(object runtime.Object) error {
			w.add(apiwatch.Added, resource, object)
			return nil
		}))
		accessor, err := meta.ListAccessor(present)
		check(err)
		timeout := int64(3600)
		changes, err := list.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: accessor.GetResourceVersion(), TimeoutSeconds: &timeout})
		check(err)
		go func() {
			for change := range changes.ResultChan() {
				w.add(change.Type, resource, change.Object)
			}
		}()
	}
	return w
}

func (w *watcher) add(kind apiwatch.EventType, resource string, object runtime.Object) {
	accessor, err := meta.Accessor(object)
	check(err)
	version, err := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
	check(err)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.events = append(w.events, event{kind, resource, accessor, version})
	w.last = time.Now()
}

func (w *watcher) count() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return len(w.events)
}

// mark notes the start of a rollout. Nothing happens at that time, so the order of the resources' watches does not matter.
func (w *watcher) mark() { w.marks = append(w.marks, w.count()) }

// since returns the events from a mark on in the order of their versions.
func (w *watcher) since(mark int) []event {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	events := append([]event(nil), w.events[mark:]...)
	sort.SliceStable(events, func(a, b int) bool { return events[a].version < events[b].version })
	return events
}

// present returns the newest state of each object, by resource and name.
func (w *watcher) present() map[string]metav1.Object {
	present := map[string]metav1.Object{}
	for _, event := range w.since(0) {
		key := event.resource + "/" + event.object.GetName()
		if event.kind == apiwatch.Deleted {
			delete(present, key)
		} else {
			present[key] = event.object
		}
	}
	return present
}

// settle waits until every rollout is complete and nothing changes any more.
func (w *watcher) settle(ctx context.Context, workloads []*workload) {
	for ; ; time.Sleep(500 * time.Millisecond) {
		if ctx.Err() != nil {
			log.Fatal("the rollouts do not end")
		}
		w.mutex.Lock()
		idle := time.Since(w.last) > quiet
		w.mutex.Unlock()
		if !idle {
			continue
		}
		present := w.present()
		waiting := 0
		for _, workload := range workloads {
			if !complete(present, workload) {
				waiting++
			}
		}
		if waiting == 0 {
			return
		}
		log.Printf("%d workloads are not complete", waiting)
	}
}

func complete(present map[string]metav1.Object, workload *workload) bool {
	deployment, ok := present["deployments/"+workload.name].(*appsv1.Deployment)
	if !ok {
		return false
	}
	status := deployment.Status
	ready, wanted := 0, int(workload.replicas())
	for key, object := range present {
		if pod, ok := object.(*v1.Pod); ok && strings.HasPrefix(key, "pods/"+workload.name+"-") {
			if pod.DeletionTimestamp != nil || pod.Status.Phase != v1.PodRunning {
				return false
			}
			ready++
		}
	}
	return ready == wanted && status.ObservedGeneration == deployment.Generation && int(status.UpdatedReplicas) == wanted &&
		int(status.AvailableReplicas) == wanted && int(status.Replicas) == wanted
}
