// Package http finds rows at a service that speaks HTTP and JSON.
package http
