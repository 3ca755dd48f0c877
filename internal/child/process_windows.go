package child

import (
	"errors"
	"os/exec"
	"syscall"
	"time"
	"unsafe"
)

var getProcessMemoryInfo = syscall.NewLazyDLL("psapi.dll").NewProc("GetProcessMemoryInfo")

// memoryCounters is PROCESS_MEMORY_COUNTERS.
type memoryCounters struct {
	size                       uint32
	pageFaults                 uint32
	peakWorkingSet             uintptr
	workingSet                 uintptr
	quotaPeakPagedPool         uintptr
	quotaPagedPool             uintptr
	quotaPeakNonPagedPool      uintptr
	quotaNonPagedPool          uintptr
	pagefileUsage, peakPageUse uintptr
}

// Used returns the processor time that this process has used, and the most
// memory that it ever had.
func Used() (cpu time.Duration, maxRSS int64) {
	process, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0, 0
	}
	var created, exited, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(process, &created, &exited, &kernel, &user); err == nil {
		cpu = fileTime(kernel) + fileTime(user)
	}
	counters := memoryCounters{}
	counters.size = uint32(unsafe.Sizeof(counters))
	if ok, _, _ := getProcessMemoryInfo.Call(uintptr(process), uintptr(unsafe.Pointer(&counters)), uintptr(counters.size)); ok != 0 {
		maxRSS = int64(counters.peakWorkingSet)
	}
	return cpu, maxRSS
}

// fileTime is a length of time in units of 100 ns.
func fileTime(t syscall.Filetime) time.Duration {
	return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100
}

var errNoPause = errors.New("a process cannot be paused on Windows")

// Pause is not possible on Windows.
func (*Process) Pause() error { return errNoPause }

// Resume is not possible on Windows.
func (*Process) Resume() error { return errNoPause }

// Tie has a command end with this process; it comes before the command is started.
// Here the child has to notice the closed pipe.
func Tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
