package kube

import (
	"sovereign/internal/net/kubeapi"
)

// The objects as they are applied: of each what is set, in the words of Kubernetes' API. The API server refuses a field
// that it does not know, so that a mistake here is a failing test.

type configMap struct {
	kubeapi.Type
	Meta kubeapi.Meta      `json:"metadata"`
	Data map[string]string `json:"data"`
}

type service struct {
	kubeapi.Type
	Meta kubeapi.Meta `json:"metadata"`
	Spec struct {
		ClusterIP string            `json:"clusterIP"`
		Selector  map[string]string `json:"selector"`
		Ports     []servicePort     `json:"ports"`
	} `json:"spec"`
}

type servicePort struct {
	Name       string `json:"name"`
	Port       int    `json:"port"`
	TargetPort string `json:"targetPort"`
	Protocol   string `json:"protocol"`
}

type networkPolicy struct {
	kubeapi.Type
	Meta kubeapi.Meta      `json:"metadata"`
	Spec networkPolicySpec `json:"spec"`
}

type networkPolicySpec struct {
	Pods    selector      `json:"podSelector"`
	Types   []string      `json:"policyTypes"`
	Ingress []ingressRule `json:"ingress"`
}

type selector struct {
	Labels map[string]string `json:"matchLabels"`
}

type ingressRule struct {
	From  []peer       `json:"from"`
	Ports []policyPort `json:"ports"`
}

type peer struct {
	Namespaces selector `json:"namespaceSelector"`
	Pods       selector `json:"podSelector"`
}

type policyPort struct {
	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
}

type budget struct {
	kubeapi.Type
	Meta kubeapi.Meta `json:"metadata"`
	Spec struct {
		MinAvailable int      `json:"minAvailable"`
		Selector     selector `json:"selector"`
	} `json:"spec"`
}

type pod struct {
	kubeapi.Type
	Meta kubeapi.Meta `json:"metadata"`
	Spec podSpec      `json:"spec"`
}

type podSpec struct {
	RestartPolicy     string            `json:"restartPolicy"`
	Grace             int               `json:"terminationGracePeriodSeconds,omitzero"`
	AutomountToken    bool              `json:"automountServiceAccountToken"`
	ServiceLinks      bool              `json:"enableServiceLinks"`
	ServiceAccount    string            `json:"serviceAccountName,omitzero"`
	PriorityClassName string            `json:"priorityClassName,omitzero"`
	NodeSelector      map[string]string `json:"nodeSelector,omitempty"`
	Tolerations       []toleration      `json:"tolerations,omitempty"`
	PullSecrets       []reference       `json:"imagePullSecrets,omitempty"`
	Security          podSecurity       `json:"securityContext"`
	Containers        []container       `json:"containers"`
	Volumes           []volume          `json:"volumes,omitempty"`
}

type reference struct {
	Name string `json:"name"`
}

type toleration struct {
	Key      string `json:"key"`
	Operator string `json:"operator"`
	Effect   string `json:"effect"`
	Seconds  int    `json:"tolerationSeconds,omitzero"`
}

type podSecurity struct {
	Seccomp seccomp `json:"seccompProfile"`
}

type seccomp struct {
	Type string `json:"type"`
}

type container struct {
	Name              string            `json:"name"`
	Image             string            `json:"image"`
	Command           []string          `json:"command"`
	Env               []variable        `json:"env,omitempty"`
	Ports             []containerPort   `json:"ports,omitempty"`
	Resources         resources         `json:"resources,omitzero"`
	Startup           *probe            `json:"startupProbe,omitempty"`
	Readiness         *probe            `json:"readinessProbe,omitempty"`
	Liveness          *probe            `json:"livenessProbe,omitempty"`
	TerminationPolicy string            `json:"terminationMessagePolicy"`
	Security          containerSecurity `json:"securityContext"`
	Mounts            []mount           `json:"volumeMounts,omitempty"`
}

type variable struct {
	Name  string     `json:"name"`
	Value string     `json:"value,omitzero"`
	From  *valueFrom `json:"valueFrom,omitempty"`
}

type valueFrom struct {
	Field struct {
		Path string `json:"fieldPath"`
	} `json:"fieldRef"`
}

type containerPort struct {
	Name     string `json:"name"`
	Port     int    `json:"containerPort"`
	Protocol string `json:"protocol"`
}

type resources struct {
	Limits   map[string]string `json:"limits,omitempty"`
	Requests map[string]string `json:"requests,omitempty"`
}

type probe struct {
	HTTP    httpGet `json:"httpGet"`
	Period  int     `json:"periodSeconds"`
	Timeout int     `json:"timeoutSeconds"`
	Fails   int     `json:"failureThreshold"`
}

type httpGet struct {
	Path string `json:"path"`
	Port string `json:"port"`
}

type containerSecurity struct {
	Escalation   bool         `json:"allowPrivilegeEscalation"`
	Capabilities capabilities `json:"capabilities"`
}

type capabilities struct {
	Drop []string `json:"drop"`
}

type mount struct {
	Name     string `json:"name"`
	Path     string `json:"mountPath"`
	SubPath  string `json:"subPath,omitzero"`
	ReadOnly bool   `json:"readOnly,omitzero"`
}

type volume struct {
	Name     string        `json:"name"`
	EmptyDir *emptyDir     `json:"emptyDir,omitempty"`
	Claim    *claim        `json:"persistentVolumeClaim,omitempty"`
	Secret   *secretVolume `json:"secret,omitempty"`
}

type emptyDir struct {
	Medium string `json:"medium,omitzero"`
}

type claim struct {
	Name     string `json:"claimName"`
	ReadOnly bool   `json:"readOnly,omitzero"`
}

type secretVolume struct {
	Name string `json:"secretName"`
	Mode int    `json:"defaultMode"`
}
