// record writes the recorded data set of benches/compare: the objects and watch events of workloads on a real API server
// with the real controller manager and scheduler, during a rollout of each workload.
//
//	record --kapi tests/.bin/kapi --output tests/double/recorded.gz
//
// Kubelets are played (kubelet.go). It takes about two minutes on two cores.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func check(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

func main() {
	// Controllers and scheduler run in processes of their own, because each sets the flags of its process.
	if len(os.Args) > 1 && os.Args[1] == controllersProgram {
		command := controllers.NewControllerManagerCommand()
		command.SetArgs(os.Args[2:])
		check(command.Execute())
		return
	}
	if len(os.Args) > 1 && os.Args[1] == schedulerProgram {
		command := scheduler.NewSchedulerCommand()
		command.SetArgs(os.Args[2:])
		check(command.Execute())
		return
	}
	kapi := flag.String("kapi", "", "the API server that tests/build-peers.sh builds")
	output := flag.String("output", "", "the file to write")
	flag.Parse()
	if *kapi == "" || *output == "" {
		log.Fatal("--kapi and --output are required")
	}
	cluster := startCluster(*kapi)
	defer cluster.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	recording := record(ctx, cluster.config)
	cluster.stop()
	file := encode(recording)
	check(os.WriteFile(*output, file, 0o644))
	log.Printf("%s: %d bytes", *output, len(file))
}

// client returns a client whose writes appear under this name in managedFields.
func client(config *rest.Config, name string) *kubernetes.Clientset {
	named := rest.CopyConfig(config)
	named.UserAgent = name
	named.QPS, named.Burst = 1000, 1000
	set, err := kubernetes.NewForConfig(named)
	check(err)
	return set
}

func readConfig(path string) (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", path)
}

// record rolls every workload out three times. The events of the third rollout are kept; the first two leave the cluster
// in the state that the third one reaches again: a current and a previous revision.
func record(ctx context.Context, config *rest.Config) *recording {
	users := client(config, "kubectl")
	createNodes(ctx, client(config, "kubelet"))
	createNamespace(ctx, users)
	watcher := watch(ctx, client(config, "record"))
	go playKubelets(ctx, client(config, "kubelet"))
	workloads := workloads()
	var starts []time.Time
	for revision := range 3 {
		// Times have seconds: nothing of the previous rollout may be in the first second of the next one.
		time.Sleep(2 * time.Second)
		starts = append(starts, time.Now().Truncate(time.Second))
		watcher.mark()
		for _, workload := range workloads {
			workload.apply(ctx, users, revision)
		}
		watcher.settle(ctx, workloads)
		log.Printf("revision %d: %d events", revision+1, watcher.count())
	}
	return newRecording(workloads, starts, watcher)
}
