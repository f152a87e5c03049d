package expr

// Aggregation is an expression over groups of records: an outer expression over
// the results of aggregate functions, such as sum(price) / count().
type Aggregation struct {
	// Calls are the calls of aggregate functions, in the order of the text; equal ones
	// come once.
	Calls []AggregateCall
	// Result is the outer expression.
	Result *Program
}

// AggregateCall is one call of an aggregate function.
type AggregateCall struct {
	// Name is the function without _if.
	Name string
	// Args are the arguments, over the records.
	Args []*Program
	// If is the condition that a record must fulfil to count, nil for none.
	If *Program
}
