// Command server is the control plane of Kubernetes in one program, for tests: the API server, or the controller
// manager when it is called kube-controller-manager.
package main

import (
	"os"
	"path/filepath"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	if filepath.Base(os.Args[0]) == "kube-controller-manager" {
		os.Exit(cli.Run(manager.NewControllerManagerCommand()))
	}
	os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
}
