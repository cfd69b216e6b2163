package kubeapi

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// A Kind is a kind of objects.
type Kind struct {
	APIVersion string // such as apps/v1
	Name       string // such as Deployment
	Plural     string // such as deployments
}

// The kinds that are used.
var (
	ConfigMaps      = Kind{"v1", "ConfigMap", "configmaps"}
	Pods            = Kind{"v1", "Pod", "pods"}
	Services        = Kind{"v1", "Service", "services"}
	NetworkPolicies = Kind{"networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"}
	Budgets         = Kind{"policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"}
	Jobs            = Kind{"batch/v1", "Job", "jobs"}
)

// Meta is an object's metadata, as far as it is used.
type Meta struct {
	Name              string            `json:"name,omitzero"`
	Namespace         string            `json:"namespace,omitzero"`
	UID               string            `json:"uid,omitzero"`
	ResourceVersion   string            `json:"resourceVersion,omitzero"`
	CreationTimestamp time.Time         `json:"creationTimestamp,omitzero"`
	DeletionTimestamp time.Time         `json:"deletionTimestamp,omitzero"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	Finalizers        []string          `json:"finalizers,omitempty"`
	Owners            []Owner           `json:"ownerReferences,omitempty"`
}

// An Owner is an object whose end is the end of another.
type Owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// Type is the first part of every object.
type Type struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// Type returns the first part of the objects of a kind.
func (k Kind) Type() Type { return Type{k.APIVersion, k.Name} }

// Owner returns a reference to an object of a kind.
func (k Kind) Owner(m Meta) Owner { return Owner{k.APIVersion, k.Name, m.Name, m.UID} }

// path returns the path of the objects of a kind in a namespace.
func (k Kind) path(namespace string) string {
	root := "/apis/"
	if k.APIVersion == "v1" {
		root = "/api/"
	}
	return root + k.APIVersion + "/namespaces/" + namespace + "/" + k.Plural
}

// An Object is any object, with the parts that differ as they came.
type Object struct {
	Meta   Meta              `json:"metadata"`
	Data   map[string]string `json:"data,omitempty"`
	Spec   jsontext.Value    `json:"spec,omitempty"`
	Status jsontext.Value    `json:"status,omitempty"`
}
