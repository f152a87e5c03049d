package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
)

// Problem is the answer to a request that did not work, as RFC 9457 has it.
type Problem struct {
	Type   string `json:"type" doc:"What kind of problem it is: nothing beyond its code." example:"about:blank"`
	Title  string `json:"title" doc:"The words of the status." example:"Conflict"`
	Status int    `json:"status" doc:"The status of the answer." example:"409"`
	// Detail says what happened, why, and what to do.
	Detail string `json:"detail" doc:"What happened, why, and what to do." example:"pipeline orders cannot take a checkpoint: it is starting; try again when it runs"`
	Code   string `json:"code" doc:"A stable word for programs." enum:"unknown,invalid,phase,failed,permanent,fenced,busy,unauthenticated,forbidden,limited" example:"phase"`
}

const problemType = "application/problem+json"

// The codes of problems.
const (
	CodeUnknown   = "unknown"   // there is no such pipeline, checkpoint or path
	CodeInvalid   = "invalid"   // the request is wrong
	CodePhase     = "phase"     // the pipeline cannot do that in its present phase
	CodeFailed    = "failed"    // it did not work; trying again may help
	CodePermanent = "permanent" // somebody has to act
	CodeFenced    = "fenced"    // a newer process has the pipeline
	CodeBusy      = "busy"      // too much is asked for at once
)

func (p *Problem) Error() string { return p.Detail }

// GetStatus is the status of the answer.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is how a problem is sent.
func (p *Problem) ContentType(string) string { return problemType }

// problem makes one with the words of its status.
func problem(status int, code, detail string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

func invalid(format string, args ...any) *Problem {
	return problem(http.StatusBadRequest, CodeInvalid, fmt.Sprintf(format, args...))
}

// refuse answers with a problem.
func refuse(w http.ResponseWriter, p *Problem) {
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(problem(p.Status, p.Code, p.Detail)) // who asked has left
}

// problemOf says what an error means to who asked. What went wrong in a pipeline or
// with what it reads and writes is no fault of this program: 503 where trying again may
// help, and 409 where somebody has to act before.
func problemOf(err error) *Problem {
	var p *Problem
	var phase *pipeline.PhaseError
	status, code := http.StatusServiceUnavailable, CodeFailed
	switch {
	case errors.As(err, &p):
		return problem(p.Status, p.Code, p.Detail)
	case errors.Is(err, api.ErrUnknown):
		status, code = http.StatusNotFound, CodeUnknown
	case errors.Is(err, api.ErrInvalid), errors.Is(err, pipeline.ErrNoSavepointDir):
		status, code = http.StatusBadRequest, CodeInvalid
	case errors.As(err, &phase), errors.Is(err, api.ErrConflict):
		status, code = http.StatusConflict, CodePhase
	case errors.Is(err, connectors.ErrFenced):
		status, code = http.StatusConflict, CodeFenced
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case connectors.IsPermanent(err):
		status, code = http.StatusConflict, CodePermanent
	}
	return problem(status, code, err.Error())
}

// faults of requests are told by the library as problems, too.
func init() {
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		if status == http.StatusInternalServerError { // of a body that breaks off
			status = http.StatusBadRequest
		}
		return problem(status, codeOf(status), detailOf(msg, errs))
	}
}

func codeOf(status int) string {
	if status == http.StatusNotFound {
		return CodeUnknown
	}
	return CodeInvalid
}

// detailOf tells which parts of a request are wrong, without what was sent.
func detailOf(msg string, errs []error) string {
	var texts []string
	for _, err := range errs {
		var d huma.ErrorDetailer
		if !errors.As(err, &d) {
			texts = append(texts, err.Error())
			continue
		}
		f := d.ErrorDetail()
		texts = append(texts, strings.TrimPrefix(f.Location+": ", ": ")+f.Message)
	}
	if len(texts) == 0 {
		return msg
	}
	return msg + ": " + strings.Join(texts, "; ")
}
