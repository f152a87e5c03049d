package web

import "context"

// Caller is who makes a request.
type Caller struct {
	Name string // for events and the audit log
	Role Role
}

// localUser makes the requests that come without authentication: over the socket of
// the process, which only its own user may open.
var localUser = Caller{Name: "local", Role: Admin}

type callerKey struct{}

// WithCaller notes who makes a request, for its handler.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf is who makes the request.
func CallerOf(ctx context.Context) Caller {
	if c, ok := ctx.Value(callerKey{}).(Caller); ok {
		return c
	}
	return localUser
}
