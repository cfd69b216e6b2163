package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
)

// openTails is how many dashboards follow the log, as many as a workspace may have.
const openTails = 10

// startTails starts a server that logs every exchange, while ten signed-in browsers follow its log.
func startTails(ctx context.Context, s *stage, o *options) (*target, error) {
	n := tenKeys
	n.logs = true
	t, err := startWithLogs(ctx, s, o, nameTails, n)
	if err != nil {
		return nil, err
	}
	following, stop := context.WithCancel(ctx)
	s.ends = append(s.ends, stop)
	cookie, workspace, err := t.server.signIn(ctx)
	if err != nil {
		return nil, fmt.Errorf("sign in: %w", err)
	}
	t.followed = new(atomic.Int64)
	for range openTails {
		if err := t.server.follow(following, cookie, workspace, t.followed); err != nil {
			return nil, fmt.Errorf("follow the log: %w", err)
		}
	}
	return t, nil
}

// signIn opens a one-time link. It returns the cookie of the session, and the workspace.
func (g *sovereign) signIn(ctx context.Context) (cookie, workspace string, err error) {
	command := exec.CommandContext(ctx, g.binary, "admin", "dashboard", "link", "--email", benchUser, "--json", //nolint:gosec // our own program
		"--data-dir", g.data, "--root-key-file", g.root)
	out, err := command.Output()
	if err != nil {
		return "", "", err
	}
	var link struct{ URL string }
	if err := json.Unmarshal(out, &link); err != nil {
		return "", "", err
	}
	_, token, _ := strings.Cut(link.URL, "#link=")
	body, err := json.Marshal(map[string]string{"token": token})
	if err != nil {
		return "", "", err
	}
	request, err := http.NewRequestWithContext(
		ctx, http.MethodPost, "http://"+g.address+"/dashboard/api/session/link", bytes.NewReader(body),
	)
	if err != nil {
		return "", "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = response.Body.Close() }()
	var session struct{ Workspaces []struct{ ID string } }
	if err := json.NewDecoder(response.Body).Decode(&session); err != nil {
		return "", "", err
	}
	if len(session.Workspaces) == 0 || len(response.Cookies()) == 0 {
		return "", "", fmt.Errorf("%s, and no session", response.Status)
	}
	set := response.Cookies()[0]
	return set.Name + "=" + set.Value, session.Workspaces[0].ID, nil
}

// follow opens a live tail and counts its rows until ctx ends.
func (g *sovereign) follow(ctx context.Context, cookie, workspace string, rows *atomic.Int64) error {
	request, err := http.NewRequestWithContext(
		ctx, http.MethodGet, "http://"+g.address+"/dashboard/api/w/"+workspace+"/logs/tail", http.NoBody,
	)
	if err != nil {
		return err
	}
	request.Header.Set("Cookie", cookie)
	response, err := http.DefaultClient.Do(request) //nolint:bodyclose // closed below
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return errors.New(response.Status)
	}
	go func() {
		defer func() { _ = response.Body.Close() }()
		for lines := bufio.NewReaderSize(response.Body, 1<<20); ; {
			line, err := lines.ReadSlice('\n')
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return
			}
			if bytes.HasPrefix(line, []byte("event: log\n")) {
				rows.Add(1)
			}
		}
	}()
	return nil
}
