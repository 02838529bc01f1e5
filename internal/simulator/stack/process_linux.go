package stack

import "syscall"

// dieWithParent makes the kernel kill the child, paused or not, when this
// process dies, however it dies.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
