package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// marker is the variable that says which replica a process belongs to.
const marker = "SOVEREIGN_REPLICA"

// bootID names the boot of the machine.
func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot of the machine: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// A stat is what the kernel says of a process.
type stat struct {
	state   byte // Z for one that has ended, and was not waited for
	session int
	start   uint64
}

// statOf reads what the kernel says of a process.
func statOf(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The name may have spaces and parentheses in it.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat is %q", pid, text)
	}
	session, err1 := strconv.Atoi(string(fields[3]))
	start, err2 := strconv.ParseUint(string(fields[19]), 10, 64)
	return stat{fields[0][0], session, start}, errors.Join(err1, err2)
}

// hold opens a process that has this pid and start. It returns -1 if it has ended.
func hold(pid int, start uint64) (pidfd int, err error) {
	pidfd, err = unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return -1, nil
	case err != nil:
		return -1, fmt.Errorf("open process %d: %w", pid, err)
	}
	if now, err := statOf(pid); err == nil && now.start == start && now.state != 'Z' && now.state != 'X' {
		return pidfd, nil
	}
	_ = unix.Close(pidfd)
	reap(pid, start)
	return -1, nil
}

// reap waits for a process that has ended, if it is a child of this one. It says how it ended.
func reap(pid int, start uint64) string {
	const unknown = "the engine has ended; its status is not known, since the server was started anew meanwhile"
	if now, err := statOf(pid); err != nil || now.start != start {
		return unknown
	}
	var status unix.WaitStatus
	got, err := unix.Wait4(pid, &status, unix.WNOHANG, nil)
	switch {
	case err != nil || got != pid:
		return unknown
	case status.Signaled():
		return fmt.Sprintf("the engine was ended by signal %d (%s)", status.Signal(), unix.SignalName(status.Signal()))
	case status.ExitStatus() == 127:
		return "the engine's program could not be started (status 127)"
	}
	return fmt.Sprintf("the engine exited with status %d", status.ExitStatus())
}

// awaitExit waits until a process ends, and reports false if the other file became readable before, or was closed at
// its other end.
func awaitExit(pidfd, until int) (bool, error) {
	for {
		fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}, {Fd: int32(until), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return false, fmt.Errorf("wait for an engine: %w", err)
		case fds[0].Revents != 0:
			return true, nil
		case fds[1].Revents != 0:
			return false, nil
		}
	}
}

// members returns the processes that a replica has started: those with its marker, and those of its session. One that
// has overwritten its environment, to show a title, is found by its session alone.
func members(id string, leader int, start uint64) []int {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	own := []byte(marker + "=" + id)
	first, err := statOf(leader)
	reused := leader == 0 || err == nil && first.start != start
	var found []int
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil || pid == os.Getpid() {
			continue
		}
		now, err := statOf(pid)
		if err != nil || now.state == 'Z' || now.state == 'X' {
			continue
		}
		mine := !reused && now.session == leader && now.start >= start
		if !mine {
			environ, _ := os.ReadFile(filepath.Join(name, "environ")) //nolint:gosec // of other users: not readable, and not ours
			for variable := range bytes.SplitSeq(environ, []byte{0}) {
				mine = mine || bytes.Equal(variable, own)
			}
		}
		if mine {
			found = append(found, pid)
		}
	}
	return found
}

// killMembers kills what a replica has started. It returns how many processes there were.
func killMembers(id string, leader int, start uint64) int {
	all := members(id, leader, start)
	for _, pid := range all {
		pidfd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		// The pid is still that of a member: it could be another's since it was found.
		if now, err := statOf(pid); err == nil && (now.session == leader || hasMarker(pid, id)) {
			_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		}
		_ = unix.Close(pidfd)
	}
	return len(all)
}

func hasMarker(pid int, id string) bool {
	environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return bytes.Contains(environ, []byte(marker+"="+id))
}
