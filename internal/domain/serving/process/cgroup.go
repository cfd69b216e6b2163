package process

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cgroupParent returns the folder of this process's own cgroup (version 2), in which it may make others.
func cgroupParent() (string, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	below := ""
	for line := range strings.Lines(string(own)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			below = rest
		}
	}
	mount, err := cgroupMount()
	if err != nil || below == "" {
		return "", errors.Join(err, errors.New("there is no cgroup of version 2"))
	}
	at := filepath.Join(mount, below)
	trial := filepath.Join(at, fmt.Sprintf("sovereign-trial-%d", os.Getpid()))
	if err := os.Mkdir(trial, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(trial, "cgroup.procs")); err != nil {
		_ = os.Remove(trial)
		return "", err
	}
	return at, os.Remove(trial)
}

// cgroupMount returns where the cgroups are.
func cgroupMount() (string, error) {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer func() { _ = mounts.Close() }()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		// 36 35 98:0 /root /mount/point options - cgroup2 source options
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 {
			return fields[4], nil
		}
	}
	return "", errors.New("no cgroups of version 2 are mounted")
}

// cgroupPrefix is what the names of the cgroups of a folder's engines begin with: servers of several folders may run at
// once.
func cgroupPrefix(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return "sovereign-" + hex.EncodeToString(sum[:6]) + "-"
}

// endStrayCgroups ends the cgroups of replicas that have no record: a server was killed before it wrote it.
func (b *Backend) endStrayCgroups() {
	if b.cgroups == "" {
		return
	}
	known := map[string]bool{}
	for _, d := range b.deployments {
		for _, r := range d.replicas {
			known[r.Cgroup] = true
		}
	}
	all, _ := filepath.Glob(filepath.Join(b.cgroups, cgroupPrefix(b.Folder)+"*")) // the pattern is well-formed
	for _, at := range all {
		if !known[at] {
			endCgroup(at)
		}
	}
}

// makeCgroup makes a cgroup, with a bound on its memory where one is wanted.
func makeCgroup(at string, memory int64) (bounded bool, err error) {
	if err := os.Mkdir(at, 0o700); err != nil {
		return false, err
	}
	if memory == 0 {
		return true, nil
	}
	// The file is there where the controller is delegated.
	err = os.WriteFile(filepath.Join(at, "memory.max"), strconv.AppendInt(nil, memory, 10), 0o600)
	return err == nil, nil
}

// endCgroup kills what is in a cgroup, and removes it.
func endCgroup(at string) {
	if at == "" {
		return
	}
	_ = os.WriteFile(filepath.Join(at, "cgroup.kill"), []byte("1"), 0o600) // a kernel before 5.14 has none
	for range 200 {                                                        // killed processes are in it for a moment
		if err := os.Remove(at); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
