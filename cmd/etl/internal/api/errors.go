package api

import "errors"

// ErrUnknown says that the daemon has no pipeline of that name.
var ErrUnknown = errors.New("there is no such pipeline")

// ErrConflict says that a pipeline cannot do that in its state.
var ErrConflict = errors.New("the pipeline cannot do that now")

// ErrInvalid says that what was asked for is wrong.
var ErrInvalid = errors.New("the request is wrong")
