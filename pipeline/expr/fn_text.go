package expr

func init() {
	define(
		function{Function: Function{Signature: "lower(text string) string", Doc: "writes text in lower case", Example: `lower("ÄB")`, Result: `"äb"`}, run1: lower},
		function{Function: Function{Signature: "upper(text string) string", Doc: "writes text in upper case", Example: `upper("äb")`, Result: `"ÄB"`}, run1: upper},
	)
}
