// Package devstack runs private Postgres and Redis servers as child processes:
// for "forgerun dev", for the simulator's demo, for tests and benchmarks.
//
// It is about processes and folders only. It knows no schema, no key and no
// queue, and it is never used against servers that somebody else runs.
//
// What holds for every server it starts:
//
//   - It listens on 127.0.0.1 only, on a free port outside the range from which
//     the system takes ports for outgoing connections, so that the same port is
//     still free when the server is started again.
//   - It belongs to this process. Its folder is locked while it runs. It has a
//     process group of its own, so that Ctrl-C at a terminal reaches only the
//     parent, which then stops its servers in order. On Linux the kernel ends it
//     when the parent dies, however it dies; elsewhere a server that outlived
//     its parent is stopped by the next start on the same folder.
//   - It never runs as root. A root parent runs it as an unprivileged user; see
//     PostgresOptions.Dir for what that asks of the folder.
//   - What it prints goes to a log file in its folder, kept to a few megabytes.
//
// A context given to a Start function bounds the start, not the server's life.
package devstack
