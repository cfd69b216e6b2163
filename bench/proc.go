package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// spent is the CPU time, user and system, that processes have used, to the nanosecond.
func spent(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		used, err := processClock(pid)
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// processClock reads the clock that the kernel keeps for each process: all its threads, those that have ended too.
func processClock(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED: the time that the scheduler gave
	clock := uintptr(^pid<<3 | scheduled)
	var t syscall.Timespec
	if _, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0); failed != 0 { //nolint:gosec // the kernel writes a Timespec there
		return ticks(pid)
	}
	return time.Duration(t.Nano()), nil
}

// ticks is the same of /proc, in hundredths of a second, where there is no such clock.
func ticks(pid int) (time.Duration, error) {
	f, err := stat(pid)
	if err != nil {
		return 0, err
	}
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * tick, nil
}

const tick = time.Second / 100

// stat is what stands behind the name of a process in its stat, which may hold anything.
func stat(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, fmt.Errorf("the process has ended: %w", err)
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(f) < 22 {
		return nil, fmt.Errorf("stat of %d is short", pid)
	}
	return f, nil
}

// reaped is the CPU time of the children of a process that have ended, in hundredths of a second.
func reaped(pid int) (time.Duration, error) {
	f, err := stat(pid)
	if err != nil {
		return 0, err
	}
	user, _ := strconv.ParseInt(f[13], 10, 64)
	system, _ := strconv.ParseInt(f[14], 10, 64)
	return time.Duration(user+system) * tick, nil
}

// resident is the memory that processes have now.
func resident(pids []int) int64 {
	var sum int64
	for _, pid := range pids {
		if f, err := stat(pid); err == nil {
			pages, _ := strconv.ParseInt(f[21], 10, 64)
			sum += pages * int64(os.Getpagesize())
		}
	}
	return sum
}

// children are the processes that pid has started.
func children(pid int) []int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var all []int
	for _, word := range strings.Fields(string(text)) {
		if child, err := strconv.Atoi(word); err == nil {
			all = append(all, child)
		}
	}
	return all
}

// A moment is the CPU time of the whole machine since its start, from /proc/stat.
type moment struct{ busy, stolen, all time.Duration }

func machine() moment {
	text, err := os.ReadFile("/proc/stat")
	line, _, _ := bytes.Cut(text, []byte("\n"))
	f := strings.Fields(string(line)) // cpu user nice system idle iowait irq softirq stolen …
	var m moment
	if err != nil || len(f) < 9 {
		return m
	}
	for i, word := range f[1:9] {
		n, _ := strconv.ParseInt(word, 10, 64)
		m.all += time.Duration(n) * tick
		switch i {
		case 0, 1, 2:
			m.busy += time.Duration(n) * tick
		case 7:
			m.stolen += time.Duration(n) * tick
		}
	}
	return m
}

// raiseFiles lets this process and its children open that many files, or as many as it may.
func raiseFiles(want uint64) uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: want, Max: max(want, limit.Max)}) == nil {
		return want
	}
	want = min(want, limit.Max)
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: want, Max: limit.Max}) != nil {
		return limit.Cur
	}
	return want
}

// processor is the name of the machine's CPU.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

func kernel() string {
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return "Linux " + strings.TrimSpace(string(text))
}
