// Package web shows running pipelines over HTTP.
package web
