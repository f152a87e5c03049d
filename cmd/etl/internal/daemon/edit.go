package daemon

import (
	"context"
	"errors"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

// Put implements api.Service.
func (d *Daemon) Put(context.Context, string, string, string) (*api.Pipeline, error) {
	return nil, errors.New("putting a definition is not built yet")
}

// Delete implements api.Service.
func (d *Daemon) Delete(context.Context, string, string) error {
	return errors.New("deleting a pipeline is not built yet")
}
