#!/bin/sh
# Runs a program, which go test -exec gives, when no other one is run so.
exec flock --close "$(dirname "$0")/../Makefile" "$@"
