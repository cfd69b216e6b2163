package cluster

import (
	"time"

	"golang.org/x/sys/unix"
)

// boottime reads the clock by which leases are counted. It is not set by anyone, and it runs while the machine is
// suspended.
func boottime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic("cluster: this kernel has no CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(now.Nano())
}
