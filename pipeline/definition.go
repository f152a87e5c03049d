package pipeline

import "github.com/sluice-etl/sluice/checkpoint"

// StateDefinition is the definition that the state of a keyed step in a checkpoint was
// made by, as a restore compares it; empty where none is noted.
func StateDefinition(op *checkpoint.Operator) string {
	if len(op.KeyGroups) == 0 {
		return ""
	}
	noted, err := keyedStates(op)
	if err != nil {
		return ""
	}
	for _, k := range noted {
		if k.Definition != "" {
			return k.Definition
		}
	}
	return ""
}
