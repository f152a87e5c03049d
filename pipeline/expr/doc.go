// Package expr is the expression language of pipelines: the syntax and builtins
// of expr-lang, with our own types, numbers and nulls. It is the only importer of
// expr-lang, whose parser is the front end; the type check and the compiler to
// closures over a batch's slots are ours.
package expr
