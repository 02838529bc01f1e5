//go:build !linux

package main

import (
	"syscall"
)

func dieWithTest() *syscall.SysProcAttr { return nil }

func standsStill(int) bool { return true }
