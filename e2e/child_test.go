package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
)

// The tests start servers, providers and tools. None of them may outlive the test process, even if that is killed.
//
// Linux sends a child its parent-death signal when the thread that started it ends. Each child is therefore started on
// a thread of its own, which is kept until the child has ended.

// startChild starts a command that is killed when the test process ends. The channel is closed when the child has ended.
// setsid gives it a session of its own, as a service manager does: where the kernel groups tasks by session
// (sched_autogroup), each session gets an equal share of the processor.
func startChild(t testing.TB, cmd *exec.Cmd) (done chan struct{}) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	done = make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(done)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return done
}

// runChild runs a command to its end, and returns its output, which holds standard error too.
func runChild(t testing.TB, cmd *exec.Cmd) (output []byte, succeeded bool) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	<-startChild(t, cmd)
	return out.Bytes(), cmd.ProcessState.Success()
}

// startGroup is startChild for a command with children of its own, such as make: the parent-death signal does not reach
// those. A shell that waits for the end of a pipe kills the whole process group.
func startGroup(t testing.TB, cmd *exec.Cmd) (done chan struct{}) {
	t.Helper()
	done = startChild(t, cmd)
	group := cmd.Process.Pid
	reader, writer, err := os.Pipe() // the write end is closed with the test process
	if err != nil {
		t.Fatal(err)
	}
	guard := exec.Command("sh", "-c", "read -r _; kill -KILL -$0", strconv.Itoa(group))
	guard.Stdin = reader
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := guard.Start(); err != nil {
		t.Fatal(err)
	}
	_ = reader.Close()
	t.Cleanup(func() {
		_ = writer.Close()
		_ = guard.Wait()
		<-done
	})
	return done
}
