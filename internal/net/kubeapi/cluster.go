// Package kubeapi speaks to the API server of a Kubernetes cluster over plain HTTP: server-side apply, lists, watches.
// It knows what is common to all objects; what is in them is its users' own.
package kubeapi

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A Cluster says how an API server is reached, and in which namespace.
type Cluster struct {
	URL       string // such as https://10.96.0.1:443
	Namespace string
	TokenFile string // a bearer token; it is read again for every request, since it is replaced while it is used
	CAFile    string // certificates that the API server's is checked with; empty for those of the system
}

// account is the folder in which Kubernetes gives a pod its token.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster returns the cluster that this process is a pod of.
func InCluster() (Cluster, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return Cluster{}, errors.New("this is no pod of a cluster: KUBERNETES_SERVICE_HOST is not set")
	}
	namespace, err := os.ReadFile(filepath.Join(account, "namespace"))
	if err != nil {
		return Cluster{}, fmt.Errorf("read the namespace of this pod: %w", err)
	}
	return Cluster{
		URL: "https://" + net.JoinHostPort(host, port), Namespace: strings.TrimSpace(string(namespace)),
		TokenFile: filepath.Join(account, "token"), CAFile: filepath.Join(account, "ca.crt"),
	}, nil
}

// Check reports the first rule that c breaks, and the key of the configuration that it is about.
func (c Cluster) Check() (key string, err error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil:
		return "url", errors.New("must be an address such as https://10.96.0.1:443")
	case u.Scheme != "https":
		return "url", errors.New("must be https: the token goes with every request")
	case c.Namespace == "":
		return "namespace", errors.New("must be set")
	case c.TokenFile == "":
		return "token_file", errors.New("must be set")
	}
	return "", nil
}

// A Client makes the requests of one cluster.
type Client struct {
	cluster Cluster
	http    *http.Client
}

// requestTime bounds a request, watches apart.
const requestTime = 30 * time.Second

// Open returns a client. It makes no request.
func Open(c Cluster) (*Client, error) {
	if key, err := c.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	c.URL = strings.TrimRight(c.URL, "/")
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		text, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificates of the cluster: %w", err)
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("there is no certificate in %s", c.CAFile)
		}
	}
	// A watch may be silent for a minute. Keep-alive finds out within half a minute that its other end has gone.
	dialer := &net.Dialer{
		Timeout:         10 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	transport := &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: secure, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: requestTime, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute,
	}
	return &Client{cluster: c, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Namespace is where the client's objects are.
func (c *Client) Namespace() string { return c.cluster.Namespace }

// Close closes the connections that no request uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }
