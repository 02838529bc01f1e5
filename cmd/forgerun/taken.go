package main

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/forgerun/forgerun/internal/holders"
	local "github.com/forgerun/forgerun/internal/stack"
)

// taken says of an address that is taken which variable has it, and which process is there. Other errors stay as they are.
func taken(variable, address string, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	who := "another process"
	if holder, ok := holders.OfPort(address); ok {
		who = holder.String()
	}
	return fmt.Errorf("%s: %s is taken by %s: end that, or set %s to another address (port 0 takes a free one): %w",
		variable, address, who, variable, err)
}

// busy says of a data folder that is in use which variable has it, and which process uses it. Other errors stay as they are.
func busy(dataDir string, err error) error {
	used, ok := errors.AsType[*local.BusyError](err)
	if !ok {
		return err
	}
	who := "another process"
	if holder, ok := holders.OfLock(used.Lock); ok {
		who = holder.String()
	}
	return fmt.Errorf("FORGERUN_DATA_DIR: the folder %s is used by %s: end that, or set FORGERUN_DATA_DIR to another folder: %w",
		dataDir, who, err)
}
