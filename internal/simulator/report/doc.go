// Package report measures a run of the simulator while it goes on and shows it
// live on a terminal, and at the end as text, JSON, JUnit XML and one HTML file.
// It judges nothing: the verdict comes from package judge.
package report
