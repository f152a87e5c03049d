package expr

// loopDocs describes the functions with a predicate, in which # is the element,
// #index its position and .name a field of it.
var loopDocs = []Function{
	doc("all(list list, condition) bool", "tells whether a condition holds for all elements", `all([1, 2], # > 0)`, `true`),
	doc("none(list list, condition) bool", "tells whether a condition holds for no element", `none([1, 2], # > 2)`, `true`),
	doc("any(list list, condition) bool", "tells whether a condition holds for some element", `any([1, 2], # > 1)`, `true`),
	doc("one(list list, condition) bool", "tells whether a condition holds for just one element", `one([1, 2], # > 1)`, `true`),
	doc("count(list list, condition?) int", "counts the elements for which a condition holds, or those that are true", `count([1, 2, 3], # > 1)`, `2`),
	doc("sum(list list, expression?) number|duration", "adds up the elements, or what an expression makes of them", `sum([{n: 1}, {n: 2}], .n)`, `3`),
	doc("filter(list list, condition) list", "keeps the elements for which a condition holds", `filter([1, 2, 3], # > 1)`, `[2,3]`),
	doc("map(list list, expression) list", "makes a list of what an expression makes of the elements", `map([1, 2], # * #index)`, `[0,2]`),
	doc("find(list list, condition) any", "gives the first element for which a condition holds, or null", `find([1, 2, 3], # > 1)`, `2`),
	doc("findIndex(list list, condition) int|null", "gives the position of the first element for which a condition holds, or null", `findIndex([1, 2, 3], # > 1)`, `1`),
	doc("findLast(list list, condition) any", "gives the last element for which a condition holds, or null", `findLast([1, 2, 3], # > 1)`, `3`),
	doc("findLastIndex(list list, condition) int|null", "gives the position of the last element for which a condition holds, or null", `findLastIndex([1, 2, 3], # > 1)`, `2`),
	doc("groupBy(list list, expression) map", "makes a map of lists: the elements under what an expression makes of them, as text", `groupBy([1, 2, 3], # % 2 == 0 ? "even" : "odd")`, `{"odd":[1,3],"even":[2]}`),
	doc("sortBy(list list, expression, order string?) list", "sorts the elements by what an expression makes of them, in the order asc or desc", `sortBy([3, 1, 2], -#)`, `[3,2,1]`),
	doc("reduce(list list, expression, first any?) any", "folds a list: #acc is what the elements before made", `reduce([1, 2, 3], #acc + #, 10)`, `16`),
}
