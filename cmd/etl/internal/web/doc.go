// Package web shows and steers pipelines over HTTP: the API, its description, its client,
// metrics, and the server before them, which finds out who asks.
package web
