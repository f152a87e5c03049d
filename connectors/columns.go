package connectors

// Column is one field of rows, with its type.
type Column struct {
	Name string
	Type Type
}

// Type is what a column holds, as far as tables and file formats tell types apart.
type Type struct {
	Base     Base
	Nullable bool
	// Bits is the width of an Integer (8, 16, 32, 64) or a Real (32, 64); 0 for 64.
	Bits int
	// Unsigned is for integers.
	Unsigned bool
	// Precision and Scale are those of an Exact: digits in all, and behind the point.
	Precision, Scale int
	// Elem is what a Sequence holds, or the values of a Dictionary.
	Elem *Type
	// Fields are those of a Struct, in their order.
	Fields []Column
}

// Base is a type without its sizes.
type Base uint8

// The bases. A row travels as JSON, which has no form of its own for most of them:
// what each is written as is said here, and package columns reads it.
const (
	Dynamic    Base = iota // not known: any JSON value
	Boolean                // true or false
	Integer                // a JSON number without fraction
	Real                   // a JSON number; "NaN", "Infinity" and "-Infinity" as text
	Exact                  // a decimal number, as a JSON number or text
	Text                   // text
	Binary                 // text in base64
	Instant                // a point in time: RFC 3339 text or epoch milliseconds
	Local                  // date and time without a zone: text like 2026-01-31T23:59:59.5
	Date                   // text like 2026-01-31
	TimeOfDay              // text like 23:59:59.5
	Span                   // a span of time: text such as 1h30m
	UUID                   // text in the usual form
	Document               // any JSON value, kept as JSON
	Sequence               // a list of Elem
	Struct                 // an object with Fields
	Dictionary             // an object with any keys and values of Elem
)

var columnBases = [...]string{
	"any", "bool", "int", "float", "decimal", "string", "bytes", "timestamp", "timestamp_local", "date", "time",
	"duration", "uuid", "json", "list", "map", "dictionary",
}

// String is the word for the base in a pipeline file.
func (b Base) String() string { return columnBases[b] }
