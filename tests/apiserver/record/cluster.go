package main

import (
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

const (
	controllersProgram = "controllers"
	schedulerProgram   = "scheduler"
)

// The controllers of the recorded kinds. Those that wait for kubelets' leases would evict every pod.
const runningControllers = "deployment-controller,replicaset-controller,endpoints-controller," +
	"serviceaccount-controller,root-ca-certificate-publisher-controller,garbage-collector-controller,disruption-controller"

type cluster struct {
	config    *rest.Config
	directory string
	processes []*exec.Cmd
}

func startCluster(kapi string) *cluster {
	// Sockets have short paths.
	directory, err := os.MkdirTemp("", "record")
	check(err)
	c := &cluster{directory: directory}
	// The admission of service accounts adds the volumes that pods of a real cluster have.
	c.start("kube-apiserver", kapi, "--dir", directory, "--", "--disable-admission-plugins=DefaultStorageClass")
	kubeconfig := filepath.Join(directory, "kubeconfig")
	for {
		if c.config, err = readConfig(kubeconfig); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.config.ContentType = "application/vnd.kubernetes.protobuf"
	own, err := os.Executable()
	check(err)
	common := []string{"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0"}
	// Clients name the manager of fields after their program.
	c.start("kube-controller-manager", own, append([]string{controllersProgram, "--controllers=" + runningControllers,
		"--root-ca-file=" + filepath.Join(directory, "ca.crt")}, common...)...)
	c.start("kube-scheduler", own, append([]string{schedulerProgram}, common...)...)
	return c
}

func (c *cluster) start(name, program string, arguments ...string) {
	command := exec.Command(program, arguments...)
	command.Args[0] = name
	output, err := os.Create(filepath.Join(c.directory, name+".log"))
	check(err)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(command.Start())
	c.processes = append(c.processes, command)
	log.Printf("started %s, log in %s", name, output.Name())
}

func (c *cluster) stop() {
	for _, process := range c.processes {
		process.Process.Kill()
		process.Wait()
	}
	c.processes = nil
	os.RemoveAll(c.directory)
}
