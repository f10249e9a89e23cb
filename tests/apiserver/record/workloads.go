package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

const (
	// The end of the namespace's name, which each namespace of a replayed cluster has for itself.
	namespaceCode = "zqxns"
	namespace     = "shop-" + namespaceCode
)

var (
	teams = []string{"checkout", "ledger", "search", "identity", "fulfilment"}
	// The containers of the largest pods, in their order.
	names = []string{"app", "istio-proxy", "vault-agent", "log-shipper", "config-reloader", "metrics-adapter", "database-proxy",
		"oauth2-proxy", "otel-collector", "redis-cache", "nginx", "statsd-exporter"}
	// Containers in the pods of each workload.
	containers = []int{1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 10, 11, 12}
	roles      = []string{"api", "gateway", "indexer", "consumer", "scheduler", "reporter", "frontend"}
)

// workload is a Deployment with its companions.
type workload struct {
	number     int
	containers int
	name, team string
	// The end of its name, which each workload of a replayed cluster has for itself.
	code string
}

func workloads() []*workload {
	var all []*workload
	for number, containers := range containers {
		w := &workload{number: number, containers: containers, team: teams[number%len(teams)], code: fmt.Sprintf("zqx%02d", number)}
		w.name = fmt.Sprintf("%s-%s-%s", w.team, roles[number%len(roles)], w.code)
		all = append(all, w)
	}
	return all
}

// replicas is smaller for large pods, of which a few states already fill most of the file.
func (w *workload) replicas() int32 {
	switch number := int32(w.number); {
	case w.containers <= 2:
		return 3 + number%2
	case w.containers <= 5:
		return 2 + number%3
	case w.containers <= 8:
		return 2
	default:
		return 1 + number%2
	}
}

// tag is the tag of the main image of a revision: the start of a commit.
func (w *workload) tag(revision int) string { return w.digest("commit", revision)[:12] }

// checksum is that of the configuration of a revision.
func (w *workload) checksum(revision int) string { return w.digest("configuration", revision) }

func (w *workload) digest(what string, revision int) string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%s %s %d", what, w.name, revision)))
}

func (w *workload) image(revision int) string {
	return fmt.Sprintf("123456789012.dkr.ecr.eu-west-1.amazonaws.com/%s/%s:%s", w.team, strings.TrimSuffix(w.name, "-"+w.code), w.tag(revision))
}

// imageID is the digest that a container runtime reports.
func imageID(image string) string {
	repository, _, _ := strings.Cut(image, ":")
	return fmt.Sprintf("%s@sha256:%x", repository, sha256.Sum256([]byte(image)))
}

func (w *workload) labels() map[string]string {
	return map[string]string{"app": w.name, "app.kubernetes.io/name": w.name, "app.kubernetes.io/part-of": w.team,
		"app.kubernetes.io/managed-by": "Helm", "team": w.team, "helm.sh/chart": "service-4.17.2"}
}

func (w *workload) selector() map[string]string { return map[string]string{"app": w.name} }

func createNamespace(ctx context.Context, client kubernetes.Interface) {
	object := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"istio-injection": "enabled",
		"pod-security.kubernetes.io/enforce": "baseline", "team": "shop"}}}
	_, err := client.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{FieldManager: "kubectl-create"})
	check(err)
}

// apply creates the objects of a workload at its first revision, as kubectl apply does, and updates its Deployment later.
func (w *workload) apply(ctx context.Context, client kubernetes.Interface, revision int) {
	deployments := client.AppsV1().Deployments(namespace)
	if revision > 0 {
		deployment, err := deployments.Get(ctx, w.name, metav1.GetOptions{})
		check(err)
		wanted := w.deployment(revision)
		deployment.Annotations[v1.LastAppliedConfigAnnotation] = wanted.Annotations[v1.LastAppliedConfigAnnotation]
		deployment.Spec.Template = wanted.Spec.Template
		_, err = deployments.Update(ctx, deployment, metav1.UpdateOptions{FieldManager: "kubectl-client-side-apply"})
		check(err)
		return
	}
	w.createCompanions(ctx, client)
	_, err := deployments.Create(ctx, w.deployment(revision), metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"})
	check(err)
}

func (w *workload) createCompanions(ctx context.Context, client kubernetes.Interface) {
	options := metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"}
	meta := func() metav1.ObjectMeta { return metav1.ObjectMeta{Name: w.name, Labels: w.labels()} }
	_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, &v1.ServiceAccount{ObjectMeta: meta()}, options)
	check(err)
	configuration := &v1.ConfigMap{ObjectMeta: meta(), Data: map[string]string{"application.yaml": w.configuration()}}
	_, err = client.CoreV1().ConfigMaps(namespace).Create(ctx, configuration, options)
	check(err)
	service := &v1.Service{ObjectMeta: meta(), Spec: v1.ServiceSpec{Selector: w.selector(), ClusterIP: fmt.Sprintf("10.0.200.%d", 100+w.number),
		Ports: []v1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}, {Name: "metrics", Port: 9090}}}}
	_, err = client.CoreV1().Services(namespace).Create(ctx, service, options)
	check(err)
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: meta(), Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one,
		Selector: &metav1.LabelSelector{MatchLabels: w.selector()}}}
	if w.number%3 == 0 {
		_, err = client.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, budget, options)
		check(err)
	}
	if w.number%4 == 0 {
		utilization := int32(70)
		autoscaler := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta(), Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MaxReplicas: 40, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: w.name},
			Metrics: []autoscalingv2.MetricSpec{{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu",
				Target: autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: &utilization}}}}}}
		_, err = client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Create(ctx, autoscaler, options)
		check(err)
	}
}

func (w *workload) configuration() string {
	var text strings.Builder
	for at := range 30 {
		fmt.Fprintf(&text, "%s:\n  url: https://%s.%s.svc:8443/v1\n  timeout: %ds\n  retries: %d\n", roles[at%len(roles)], roles[at%len(roles)], teams[at%len(teams)], 1+at, at%4)
	}
	return text.String()
}

func (w *workload) deployment(revision int) *appsv1.Deployment {
	count, history, grace := w.replicas(), int32(1), int64(30)
	deployment := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: w.name, Namespace: namespace, Labels: w.labels(), Annotations: map[string]string{"meta.helm.sh/release-name": w.name, "meta.helm.sh/release-namespace": namespace}},
		Spec: appsv1.DeploymentSpec{Replicas: &count, RevisionHistoryLimit: &history, Selector: &metav1.LabelSelector{MatchLabels: w.selector()},
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: w.labels(), Annotations: w.podAnnotations(revision)},
				Spec: v1.PodSpec{ServiceAccountName: w.name, TerminationGracePeriodSeconds: &grace, Volumes: w.volumes(),
					NodeSelector: map[string]string{"kubernetes.io/os": "linux"}, PriorityClassName: ""}}}}
	pod := &deployment.Spec.Template.Spec
	for at := range w.number % 3 {
		pod.InitContainers = append(pod.InitContainers, w.container(fmt.Sprintf("init-%s", names[11-at]), 11-at, revision))
	}
	for at := range w.containers {
		pod.Containers = append(pod.Containers, w.container(names[at], at, revision))
	}
	if w.number%2 == 0 {
		pod.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "kubernetes.io/hostname",
			WhenUnsatisfiable: v1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: w.selector()}}}
	} else {
		pod.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{
			Weight: 100, PodAffinityTerm: v1.PodAffinityTerm{TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{MatchLabels: w.selector()}}}}}}
	}
	applied, err := json.Marshal(deployment)
	check(err)
	deployment.Annotations[v1.LastAppliedConfigAnnotation] = string(applied) + "\n"
	return deployment
}

// podAnnotations are those of injectors and agents: up to 4 kB.
func (w *workload) podAnnotations(revision int) map[string]string {
	annotations := map[string]string{"checksum/config": w.checksum(revision), "prometheus.io/port": "9090", "prometheus.io/scrape": "true",
		"kubectl.kubernetes.io/default-container": "app"}
	if w.containers > 1 {
		annotations["sidecar.istio.io/status"] = `{"initContainers":["istio-init"],"containers":["istio-proxy"],"volumes":["workload-socket",` +
			`"credential-socket","workload-certs","istio-envoy","istio-data","istio-podinfo","istio-token","istiod-ca-cert"],"imagePullSecrets":null,"revision":"default"}`
	}
	for at := range 1 + w.number%4 {
		secret := fmt.Sprintf("%s-%s", w.team, roles[(w.number+at)%len(roles)])
		annotations["vault.hashicorp.com/agent-inject-secret-"+secret] = "kv/data/" + w.team + "/" + secret
		annotations["vault.hashicorp.com/agent-inject-template-"+secret] = strings.Repeat(fmt.Sprintf(
			"{{- with secret \"kv/data/%s/%s\" -}}\nexport DATABASE_URL=\"postgres://{{ .Data.data.username }}:{{ .Data.data.password }}@%s:5432/app\"\n{{- end }}\n", w.team, secret, secret), 1+(w.number+at)%5)
	}
	return annotations
}

func (w *workload) volumes() []v1.Volume {
	volumes := []v1.Volume{{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: w.name}}}},
		{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	if w.containers > 1 {
		volumes = append(volumes, v1.Volume{Name: "istio-envoy", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "Memory"}}},
			v1.Volume{Name: "istio-podinfo", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}, {Path: "annotations", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations"}}}}}})
	}
	for at := range w.number % 4 {
		yes := true
		volumes = append(volumes, v1.Volume{Name: fmt.Sprintf("secret-%d", at), VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: fmt.Sprintf("%s-%d", w.team, at), Optional: &yes}}})
	}
	return volumes
}

func (w *workload) container(name string, at, revision int) v1.Container {
	image := fmt.Sprintf("123456789012.dkr.ecr.eu-west-1.amazonaws.com/platform/%s:v1.%d.%d", names[at], 3+at, at%5)
	if at == 0 {
		image = w.image(revision)
	}
	quantities := func(factor int) v1.ResourceList {
		list := v1.ResourceList{"cpu": resource.MustParse(fmt.Sprintf("%dm", factor*(50+25*(at+w.number%5)))),
			"memory": resource.MustParse(fmt.Sprintf("%dMi", factor*(64+32*((at+w.number)%7))))}
		if w.number%5 == 1 {
			list["ephemeral-storage"] = resource.MustParse(fmt.Sprintf("%dGi", factor))
		}
		return list
	}
	container := v1.Container{Name: name, Image: image, Args: []string{"--config=/etc/app/application.yaml", "--log.level=info", fmt.Sprintf("--shutdown-timeout=%ds", 5+at)},
		Resources:    v1.ResourceRequirements{Requests: quantities(1), Limits: quantities(2)},
		VolumeMounts: []v1.VolumeMount{{Name: "config", MountPath: "/etc/app", ReadOnly: true}, {Name: "tmp", MountPath: "/tmp"}}}
	for variable := range 4 + (w.number*7+at*3)%12 {
		container.Env = append(container.Env, v1.EnvVar{Name: strings.ToUpper(fmt.Sprintf("%s_%s_%d", w.team, roles[variable%len(roles)], variable)),
			Value: fmt.Sprintf("https://%s-%s.internal.example.com:%d/v%d", roles[(variable+at)%len(roles)], w.team, 8000+variable, variable%3)})
	}
	container.Env = append(container.Env, v1.EnvVar{Name: "POD_IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}})
	if strings.HasPrefix(name, "init-") {
		return container
	}
	port := int32(8080 + at)
	container.Ports = []v1.ContainerPort{{Name: fmt.Sprintf("http-%d", at), ContainerPort: port}}
	if at == 0 {
		container.Ports = []v1.ContainerPort{{Name: "http", ContainerPort: port}, {Name: "metrics", ContainerPort: 9090}}
	}
	if at < 2 {
		handler := v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(port)}}
		container.ReadinessProbe = &v1.Probe{ProbeHandler: handler, PeriodSeconds: 5}
		container.LivenessProbe = &v1.Probe{ProbeHandler: handler, InitialDelaySeconds: 10}
	}
	return container
}
