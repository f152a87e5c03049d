package expr

import "strings"

// What functions of other languages are called here, by their names in lower case.
var (
	functionsElsewhere = map[string]string{
		"ifnull": "`coalesce(a, b)` or `a ?? b`", "nvl": "`coalesce(a, b)` or `a ?? b`", "if": "`condition ? a : b`", "iif": "`condition ? a : b`",
		"substr": "`text[from:to]`", "substring": "`text[from:to]`", "length": "`len(x)`", "char_length": "`len(x)`", "size": "`len(x)`",
		"concat_ws": "`join([a, b], \"-\")`", "regexp_extract": "`extract(text, \"regex\")`", "regexp_replace": "`replace_all(text, \"regex\", with)`",
		"to_timestamp": "`parse_time(text, layout)`", "date_format": "`format_time(time, layout)`", "strftime": "`format_time(time, layout)`",
		"to_date": "`date(text)`", "current_timestamp": "`now()`", "toint": "`int(x)`", "tostring": "`string(x)`", "isnull": "`is_null(x)`",
		"power": "`a ** b`", "pow": "`a ** b`", "mod": "`a % b`", "startswith": "`hasPrefix(text, prefix)`", "endswith": "`hasSuffix(text, suffix)`",
	}
	aggregatesElsewhere = map[string]string{
		"percentile": "`quantile(x, 0.99)`", "percentile_cont": "`quantile(x, 0.99)`", "percentile_disc": "`quantile(x, 0.99)`",
		"approx_percentile": "`quantile(x, 0.99)`", "mean": "`avg(x)`", "average": "`avg(x)`", "median": "`quantile(x, 0.5)`",
		"std": "`stddev(x)`", "stdev": "`stddev(x)`", "stddev_samp": "`stddev(x)`", "stddev_pop": "`stddev(x)`, which is that of a sample",
		"array_agg": "`collect(x)`", "collect_list": "`collect(x)`", "listagg": "`join(collect(x), \",\")`", "string_agg": "`join(collect(x), \",\")`",
		"group_concat": "`join(collect(x), \",\")`", "first_value": "`first(x)`", "last_value": "`last(x)`", "any_value": "`first(x)`",
		"approx_count_distinct": "`approx_distinct(x)`", "max_by": "`arg_max(x, by)`", "min_by": "`arg_min(x, by)`", "countif": "`count(condition)`",
		"countdistinct": "`count_distinct(x)`", "uniqexact": "`count_distinct(x)`",
	}
)

// functionHelp is the help for a name that no function has.
func (c *compiler) functionHelp(name string) string {
	lower, names := strings.ToLower(name), functionNames()
	if c.agg != nil {
		if other := aggregatesElsewhere[lower]; other != "" {
			return "write " + other
		}
		names = append(names, aggregateNames()...)
	}
	if other := functionsElsewhere[lower]; other != "" {
		return "write " + other
	}
	return didYouMean(name, names)
}

// ofRecords gives faults in the arguments of a function of lists, from a number of them
// on, the help that an aggregate function was meant, where there is one for the same.
func (c *compiler) ofRecords(name string, from int) {
	if c.agg == nil || c.agg.within != "" || aggregatesElsewhere[name] == "" {
		return
	}
	for _, e := range c.errs[from:] {
		e.Help = name + "() is about a list; over the records of a group write " + aggregatesElsewhere[name]
	}
}
