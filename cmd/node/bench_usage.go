package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// processUsage is what a set of processes used: CPU-seconds (user and system)
// since a starting point, and resident bytes now.
type processUsage struct {
	CPUSeconds float64 `json:"cpu_seconds"`
	RSS        int64   `json:"rss_bytes"`
}

// clockTicks is USER_HZ, which Linux fixes at 100 for what /proc shows.
const clockTicks = 100

// readUsage sums over processes; nil for none.
func readUsage(pids []int) (*processUsage, error) {
	if len(pids) == 0 {
		return nil, nil
	}
	var u processUsage
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil, fmt.Errorf("measure process %d: %w", pid, err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // the name may hold spaces
		fields := strings.Fields(rest)
		if len(fields) < 22 {
			return nil, fmt.Errorf("measure process %d: unexpected /proc/%d/stat", pid, pid)
		}
		for _, f := range fields[11:13] { // utime, stime
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("measure process %d: %w", pid, err)
			}
			u.CPUSeconds += float64(n) / clockTicks
		}
		pages, err := strconv.ParseInt(fields[21], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("measure process %d: %w", pid, err)
		}
		u.RSS += pages * int64(os.Getpagesize())
	}
	return &u, nil
}

// since is the CPU used after an earlier reading, and the memory now.
func (u *processUsage) since(start *processUsage) *processUsage {
	if u == nil || start == nil {
		return nil
	}
	return &processUsage{CPUSeconds: u.CPUSeconds - start.CPUSeconds, RSS: u.RSS}
}
