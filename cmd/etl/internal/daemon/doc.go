// Package daemon runs a folder of pipelines as a service. It holds what the program is
// set up with, supervises each pipeline by itself, takes changed files over, and keeps
// what is shown of all this: states, health, events, lines of the log and the history
// of checkpoints. Daemon implements api.Service.
package daemon
