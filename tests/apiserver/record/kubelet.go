package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	mathrand "math/rand"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Nodes of the recording. The scheduler spreads the pods of each workload over them.
const nodes = 3

func nodeIP(node int) string { return fmt.Sprintf("10.120.133.%d", 200+node) }

func nodeName(node int) string {
	return fmt.Sprintf("ip-10-120-133-%d.eu-west-1.compute.internal", 200+node)
}

func createNodes(ctx context.Context, client kubernetes.Interface) {
	for number := range nodes {
		name := nodeName(number)
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/instance-type": "m6i.16xlarge",
			"beta.kubernetes.io/os": "linux", "failure-domain.beta.kubernetes.io/region": "eu-west-1",
			"eks.amazonaws.com/capacityType": "ON_DEMAND", "eks.amazonaws.com/nodegroup": "general",
			"failure-domain.beta.kubernetes.io/zone": "eu-west-1a", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name,
			"kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": "m6i.16xlarge",
			"topology.kubernetes.io/region": "eu-west-1", "topology.kubernetes.io/zone": "eu-west-1a",
		}, Annotations: map[string]string{
			"csi.volume.kubernetes.io/nodeid":                        `{"ebs.csi.aws.com":"i-0f5d3c7a9b1e2d4f6"}`,
			"volumes.kubernetes.io/controller-managed-attach-detach": "true",
			"alpha.kubernetes.io/provided-node-ip":                   nodeIP(number),
		}}, Spec: v1.NodeSpec{ProviderID: "aws:///eu-west-1a/i-0f5d3c7a9b1e2d4f6"}}
		node, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		check(err)
		// The controller that removes the taint of new nodes is not running.
		node.Spec.Taints = nil
		node, err = client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		check(err)
		node.Status = nodeStatus(number)
		_, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
		check(err)
	}
}

func nodeStatus(number int) v1.NodeStatus {
	capacity := v1.ResourceList{"cpu": resource.MustParse("640"), "memory": resource.MustParse("2636719Mi"),
		"pods": resource.MustParse("737"), "ephemeral-storage": resource.MustParse("524275692Ki"),
		"hugepages-1Gi": resource.MustParse("0"), "hugepages-2Mi": resource.MustParse("0")}
	status := v1.NodeStatus{Capacity: capacity, Allocatable: capacity,
		Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: nodeIP(number)},
			{Type: v1.NodeInternalDNS, Address: nodeName(number)}, {Type: v1.NodeHostName, Address: nodeName(number)}},
		DaemonEndpoints: v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: 10250}},
		NodeInfo: v1.NodeSystemInfo{MachineID: "ec2bd3f4c1a59e7e0f1f6b8ad6a0c5d1", SystemUUID: "ec2bd3f4-c1a5-9e7e-0f1f-6b8ad6a0c5d1",
			BootID: "1c8a5b4e-51a7-4f0e-8f0e-3a6d9f3f2f11", KernelVersion: "6.12.40-63.114.amzn2023.x86_64", OSImage: "Amazon Linux 2023",
			ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64"}}
	for _, condition := range []struct{ kind, status, reason, message string }{
		{"MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
		{"DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
		{"PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
		{"Ready", "True", "KubeletReady", "kubelet is posting ready status"},
	} {
		status.Conditions = append(status.Conditions, v1.NodeCondition{Type: v1.NodeConditionType(condition.kind),
			Status: v1.ConditionStatus(condition.status), Reason: condition.reason, Message: condition.message,
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()})
	}
	for image := range 40 {
		name := fmt.Sprintf("123456789012.dkr.ecr.eu-west-1.amazonaws.com/%s/%s", teams[image%len(teams)], names[image%len(names)])
		status.Images = append(status.Images, v1.ContainerImage{
			Names: []string{name + "@sha256:" + randomHex(32), fmt.Sprintf("%s:v1.%d.0", name, image)}, SizeBytes: int64(3_000_000 * (50 - image))})
	}
	return status
}

func randomHex(bytes int) string {
	random := make([]byte, bytes)
	rand.Read(random)
	return hex.EncodeToString(random)
}

// playKubelets reports the status of pods that are bound to a node as a kubelet does, and removes them when they are deleted.
func playKubelets(ctx context.Context, client kubernetes.Interface) {
	factory := informers.NewSharedInformerFactory(client, 0)
	type life struct{ started, ended bool }
	lives := map[types.UID]*life{}
	advance := func(object any) {
		pod := object.(*v1.Pod)
		if pod.Spec.NodeName == "" {
			return
		}
		current := lives[pod.UID]
		if current == nil {
			current = &life{}
			lives[pod.UID] = current
		}
		if !current.started {
			current.started = true
			go run(ctx, client, pod.DeepCopy())
		}
		if pod.DeletionTimestamp != nil && !current.ended {
			current.ended = true
			go end(ctx, client, pod.DeepCopy())
		}
	}
	factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: advance, UpdateFunc: func(_, new any) { advance(new) }})
	factory.Start(ctx.Done())
	<-ctx.Done()
}

var addresses atomic.Int64

// pause waits as long as pulling an image or starting a process takes here.
func pause() { time.Sleep(time.Duration(200+mathrand.Intn(900)) * time.Millisecond) }

// run starts the containers of a pod: first the sandbox, then each init container, then all others, which become ready.
func run(ctx context.Context, client kubernetes.Interface, pod *v1.Pod) {
	start := metav1.Now()
	var node int
	for number := range nodes {
		if nodeName(number) == pod.Spec.NodeName {
			node = number
		}
	}
	status := &pod.Status
	status.StartTime, status.HostIP = &start, nodeIP(node)
	status.HostIPs = []v1.HostIP{{IP: status.HostIP}}
	waiting := "ContainerCreating"
	if len(pod.Spec.InitContainers) > 0 {
		waiting = "PodInitializing"
	}
	status.ContainerStatuses = statuses(pod.Spec.Containers, waiting)
	status.InitContainerStatuses = statuses(pod.Spec.InitContainers, "PodInitializing")
	conditions(pod, 0, "False", len(pod.Spec.InitContainers) == 0, false)
	pause()
	report(ctx, client, pod)
	address := addresses.Add(1)
	status.PodIP = fmt.Sprintf("100.64.%d.%d", 100+address/100, 100+address%100)
	status.PodIPs = []v1.PodIP{{IP: status.PodIP}}
	for at := range pod.Spec.InitContainers {
		pause()
		state := &status.InitContainerStatuses[at]
		started(state)
		state.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed",
			StartedAt: metav1.Now(), FinishedAt: metav1.Now(), ContainerID: state.ContainerID}}
		state.Ready, state.Started = true, new(bool)
		conditions(pod, at+1, "True", at+1 == len(pod.Spec.InitContainers), false)
		report(ctx, client, pod)
	}
	pause()
	status.Phase = v1.PodRunning
	for at := range status.ContainerStatuses {
		state, yes := &status.ContainerStatuses[at], true
		started(state)
		state.State = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}}
		state.Started, state.Ready = &yes, pod.Spec.Containers[at].ReadinessProbe == nil
	}
	conditions(pod, len(pod.Spec.InitContainers), "True", true, false)
	report(ctx, client, pod)
	pause()
	for at := range status.ContainerStatuses {
		status.ContainerStatuses[at].Ready = true
	}
	conditions(pod, len(pod.Spec.InitContainers), "True", true, true)
	report(ctx, client, pod)
}

// end stops the containers of a deleted pod and removes it.
func end(ctx context.Context, client kubernetes.Interface, pod *v1.Pod) {
	pause()
	for at := range pod.Status.ContainerStatuses {
		state := &pod.Status.ContainerStatuses[at]
		begun := metav1.Now()
		if state.State.Running != nil {
			begun = state.State.Running.StartedAt
		}
		state.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed",
			StartedAt: begun, FinishedAt: metav1.Now(), ContainerID: state.ContainerID}}
		state.Started, state.Ready = new(bool), false
	}
	pod.Status.Phase = v1.PodSucceeded
	conditions(pod, len(pod.Spec.InitContainers), "False", true, false)
	report(ctx, client, pod)
	now := int64(0)
	err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now,
		Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		check(err)
	}
}

func statuses(containers []v1.Container, waiting string) []v1.ContainerStatus {
	var all []v1.ContainerStatus
	for _, container := range containers {
		no := false
		all = append(all, v1.ContainerStatus{Name: container.Name, Image: container.Image, Started: &no,
			State:              v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: waiting}},
			AllocatedResources: container.Resources.Requests, Resources: container.Resources.DeepCopy(),
			VolumeMounts: mounts(container)})
	}
	return all
}

func mounts(container v1.Container) []v1.VolumeMountStatus {
	var all []v1.VolumeMountStatus
	for _, mount := range container.VolumeMounts {
		status := v1.VolumeMountStatus{Name: mount.Name, MountPath: mount.MountPath, ReadOnly: mount.ReadOnly}
		if mount.ReadOnly {
			disabled := v1.RecursiveReadOnlyDisabled
			status.RecursiveReadOnly = &disabled
		}
		all = append(all, status)
	}
	return all
}

func started(state *v1.ContainerStatus) {
	state.ContainerID = "containerd://" + randomHex(32)
	state.ImageID = imageID(state.Image)
}

// conditions sets the conditions of a pod; those that do not change keep their time.
func conditions(pod *v1.Pod, initialised int, sandbox v1.ConditionStatus, isInitialised, isReady bool) {
	reason, message := "", ""
	if !isReady {
		reason, message = "ContainersNotReady", "containers with unready status: ["
		for at, container := range pod.Spec.Containers {
			if at > 0 {
				message += " "
			}
			message += container.Name
		}
		message += "]"
	}
	if pod.Status.Phase == v1.PodSucceeded {
		reason, message = "PodCompleted", ""
	}
	set := func(kind v1.PodConditionType, status v1.ConditionStatus, reason, message string) {
		condition := v1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message,
			LastTransitionTime: metav1.Now(), ObservedGeneration: pod.Generation}
		for at, old := range pod.Status.Conditions {
			if old.Type == kind {
				if old.Status == status {
					condition.LastTransitionTime = old.LastTransitionTime
				}
				pod.Status.Conditions[at] = condition
				return
			}
		}
		pod.Status.Conditions = append(pod.Status.Conditions, condition)
	}
	set("PodReadyToStartContainers", sandbox, "", "")
	if isInitialised {
		set(v1.PodInitialized, "True", "", "")
	} else {
		missing := "containers with incomplete status: ["
		for at, container := range pod.Spec.InitContainers[initialised:] {
			if at > 0 {
				missing += " "
			}
			missing += container.Name
		}
		set(v1.PodInitialized, "False", "ContainersNotInitialized", missing+"]")
	}
	set(v1.PodReady, truth(isReady), reason, message)
	set(v1.ContainersReady, truth(isReady), reason, message)
}

func truth(value bool) v1.ConditionStatus {
	if value {
		return v1.ConditionTrue
	}
	return v1.ConditionFalse
}

// report sends a status. A pod that has been deleted meanwhile, or is being deleted, keeps what its end reports.
func report(ctx context.Context, client kubernetes.Interface, pod *v1.Pod) {
	pod.Status.ObservedGeneration = pod.Generation
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": pod.Status})
	check(err)
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		check(err)
	}
}
