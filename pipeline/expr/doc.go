// Package expr is the expression language of pipelines: the syntax and builtins
// of expr-lang, with our own types, numbers and nulls. It is the only importer of
// expr-lang.
//
// # How it works
//
// The text is checked for size and nesting, since expr-lang's parser recurses,
// and parsed by expr-lang. Our compiler walks the tree, asks the Scope for the
// slots of fields, finds the set of kinds that each part may have (Type), notes
// all faults, computes what is the same for every record, and makes closures over
// the slots of a batch. A part that has no value returns a Value of a private
// kind and leaves the reason in the Env, so that the way without faults costs
// nothing. Text and containers go into the batch's arena.
//
// The whole language is compiled so, predicates such as filter(xs, # > 1)
// included. Builtins of expr-lang for which we have no code (bitand, bitor,
// bitxor, bitnand, bitnot, bitshl, bitshr, bitushr and splitAfter) are run by its
// virtual machine on converted arguments, call by call; Program.Native tells
// whether there are such calls. timezone() is refused, since no value holds a
// zone: functions of time take its name.
//
// # Numbers
//
// Int is 64 bits and checked: + - * and the unary minus fail where the result
// does not fit. / of ints is a float, % takes ints, ** gives a float. Int and
// decimal give decimal, float with either gives float. Sums and products of
// decimals are exact, quotients rounded half to even to 38 digits; a result of
// more than 38 digits, written without an exponent, is an error. Dividing by zero
// is an error for all kinds. Numbers of different kinds compare by exact value,
// where a float that is no whole number has the value of its shortest text: 0.1
// equals decimal("0.1"), and 2^53+1 does not equal the float 2^53. NaN equals
// nothing. floor, ceil, round and abs keep the kind.
//
// # Nulls
//
// An absent field is null. == and != take it, `in`, contains, startsWith,
// endsWith and matches are false for it, ?? and coalesce replace it. Arithmetic,
// ordering, conditions and functions fail for it, and name the field. A member of
// null is null. A path of names such as a.b.c is null where any part is absent or
// no map; a member of any other value that is no container is an error. An index
// outside of a list is an error; get() gives null there.
//
// # Text, lists and maps
//
// Positions in text count characters, in indexes, slices, len and indexOf alike.
// Lists and maps are held as JSON text: what a function only passes on keeps its
// form (1.10 stays 1.10), and timestamps, durations and bytes become text within
// them. Equality compares lists by elements and maps by fields. Names of a map's
// fields are strings; groupBy writes its keys as text.
//
// # Aggregate functions
//
// CompileAggregation compiles an expression over groups of records, where sum(price)
// and its kin may stand. It cuts the expression in two: the arguments and conditions
// of the calls are Programs over records, what is around the calls is one over their
// results and the keys of the group. There the names of aggregate functions are not
// those of builtins; `::count(xs, # > 1)` still is. What the functions do is in
// package accumulate; what they take is in AggregateFunctions.
//
// # Limits
//
// See Limits. Elements visited and text gone through count as steps, made text
// as bytes, so that no expression can hang or exhaust the process, whatever the
// record holds. Regular expressions are RE2's and run in linear time.
package expr
