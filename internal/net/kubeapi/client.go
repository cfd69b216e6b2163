package kubeapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// An Error is a refusal of the API server.
type Error struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"` // such as NotFound
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the API server answers %d %s", e.Code, e.Reason)
	}
	return e.Message
}

// Is reports whether err is a refusal with one of the codes.
func Is(err error, codes ...int) bool {
	var refusal *Error
	if !errors.As(err, &refusal) {
		return false
	}
	for _, code := range codes {
		if refusal.Code == code {
			return true
		}
	}
	return false
}

// answerBytes bounds an answer that is read whole, and errorBytes what is read of an error.
const (
	answerBytes = 64 << 20
	errorBytes  = 1 << 20
)

// do makes a request, and returns the answer if it is a success.
func (c *Client) do(
	ctx context.Context, method, path string, query url.Values, contentType string, body []byte,
) (*http.Response, error) {
	target := c.cluster.URL + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make a request to the API server: %w", err)
	}
	token, err := os.ReadFile(c.cluster.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("read the token for the API server: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "sovereign")
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		return answer, nil
	}
	defer func() { _ = answer.Body.Close() }()
	refusal := &Error{}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, errorBytes)) // what is missing is not shown
	if json.Unmarshal(text, refusal) != nil || refusal.Code == 0 {
		*refusal = Error{Code: answer.StatusCode, Reason: http.StatusText(answer.StatusCode)}
	}
	return nil, refusal
}

// call makes a request that is answered at once, and reads the answer into out.
func (c *Client) call(
	ctx context.Context, method, path string, query url.Values, contentType string, in, out any,
) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in, json.Deterministic(true)); err != nil {
			return fmt.Errorf("write a request to the API server: %w", err)
		}
	}
	answer, err := c.do(ctx, method, path, query, contentType, body)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if out == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(answer.Body, answerBytes))
	} else {
		err = json.UnmarshalRead(io.LimitReader(answer.Body, answerBytes), out)
	}
	if err != nil {
		return fmt.Errorf("read the API server's answer: %w", err)
	}
	return nil
}

// Manager is the name under which fields are owned.
const Manager = "sovereign"

// Apply makes the fields of an object what they are in it, and returns the whole object. An object that is not there is
// made; fields that were applied before, and are missing now, are removed. A field that the API server does not know is
// refused.
func (c *Client) Apply(ctx context.Context, k Kind, name string, object any) (Object, error) {
	query := url.Values{"fieldManager": {Manager}, "force": {"true"}, "fieldValidation": {"Strict"}}
	var made Object
	err := c.call(
		ctx, http.MethodPatch, k.path(c.cluster.Namespace)+"/"+name, query, "application/apply-patch+yaml", object,
		&made,
	)
	if err != nil {
		return Object{}, fmt.Errorf("apply the %s %s: %w", k.Name, name, err)
	}
	return made, nil
}

// Merge changes the members of an object that patch has. One with a resourceVersion that is not the object's is refused
// with 409.
func (c *Client) Merge(ctx context.Context, k Kind, name string, patch any) error {
	query := url.Values{"fieldManager": {Manager}}
	err := c.call(
		ctx, http.MethodPatch, k.path(c.cluster.Namespace)+"/"+name, query, "application/merge-patch+json", patch, nil,
	)
	if err != nil {
		return fmt.Errorf("change the %s %s: %w", k.Name, name, err)
	}
	return nil
}

// Get returns an object.
func (c *Client) Get(ctx context.Context, k Kind, name string) (Object, error) {
	var found Object
	if err := c.call(ctx, http.MethodGet, k.path(c.cluster.Namespace)+"/"+name, nil, "", nil, &found); err != nil {
		return Object{}, fmt.Errorf("read the %s %s: %w", k.Name, name, err)
	}
	return found, nil
}

// Delete deletes an object by its name and uid, and in the background what it owns. One that is not there is fine, and
// so is another one of its name. With a resourceVersion, the object is deleted as it was then, or refused with 409. A
// grace of a pod below 0 is the pod's own.
func (c *Client) Delete(ctx context.Context, k Kind, m Meta, grace int) error {
	options := struct {
		Type
		Propagation   string            `json:"propagationPolicy"`
		Preconditions map[string]string `json:"preconditions,omitempty"`
		Grace         *int              `json:"gracePeriodSeconds,omitempty"`
	}{Type{"v1", "DeleteOptions"}, "Background", nil, nil}
	options.Preconditions = map[string]string{"uid": m.UID}
	if m.ResourceVersion != "" {
		options.Preconditions["resourceVersion"] = m.ResourceVersion
	}
	if grace >= 0 {
		options.Grace = &grace
	}
	err := c.call(ctx, http.MethodDelete, k.path(c.cluster.Namespace)+"/"+m.Name, nil, "application/json", options, nil)
	if err == nil || Is(err, http.StatusNotFound) || m.ResourceVersion == "" && Is(err, http.StatusConflict) {
		return nil
	}
	return fmt.Errorf("delete the %s %s: %w", k.Name, m.Name, err)
}

// logBytes bounds what is read of a container's log. A node keeps a line in parts of at most 16 KiB, and each is a line
// of the log, so that 100 of them are below it.
const logBytes = 4 << 20

// Log returns the last lines of a container.
func (c *Client) Log(ctx context.Context, pod, container string, lines int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	query := url.Values{"container": {container}, "tailLines": {strconv.Itoa(lines)}}
	answer, err := c.do(ctx, http.MethodGet, Pods.path(c.cluster.Namespace)+"/"+pod+"/log", query, "", nil)
	if err != nil {
		return "", fmt.Errorf("read the log of %s: %w", pod, err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, logBytes))
	if err != nil {
		return "", fmt.Errorf("read the log of %s: %w", pod, err)
	}
	return string(text), nil
}
