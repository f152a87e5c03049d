package spec

// Code names a kind of fault for good: E for errors, W for warnings.
type Code string

// The codes.
const (
	CodeRead        Code = "E0101" // the file cannot be read
	CodeLimit       Code = "E0102" // the file is larger, deeper or longer than allowed
	CodeSyntax      Code = "E0103" // the file is no valid YAML
	CodeDuplicate   Code = "E0104" // a key is written twice
	CodeTag         Code = "E0105" // a YAML tag, where text is meant
	CodeAlias       Code = "E0106" // an anchor or alias that cannot be used so
	CodeDocument    Code = "E0107" // the file is not one map
	CodePitfall     Code = "E0108" // YAML reads the text otherwise than it is meant
	CodeUnknownKey  Code = "E0201" // a key that the block does not have
	CodeType        Code = "E0202" // a value of another type than the key wants
	CodeMissing     Code = "E0203" // a required key is not there
	CodeEnum        Code = "E0204" // a text that is none of those allowed
	CodeValue       Code = "E0205" // a value that cannot be used
	CodeVariable    Code = "E0207" // a ${…} that cannot be resolved
	CodeOverride    Code = "E0208" // a --set flag that cannot be applied
	CodeConnector   Code = "E0301" // an unknown kind of source or sink
	CodeOneKind     Code = "E0302" // a block with no connector or operator, or with several
	CodeOperator    Code = "E0303" // an unknown transform
	CodeName        Code = "E0304" // a name with characters that names do not have
	CodeNameTaken   Code = "E0305" // a name given twice
	CodeUndefined   Code = "E0306" // a name that nothing defines
	CodeBranch      Code = "E0307" // a branch that does not exist, or one that has to be chosen
	CodeFrom        Code = "E0308" // what a step reads must be said
	CodeCycle       Code = "E0309" // steps that read each other in a circle
	CodeUnread      Code = "E0310" // a source that nothing reads
	CodeExpression  Code = "E0401" // an expression that does not compile
	CodeStepUnread  Code = "W0501" // a step or branch whose records go nowhere
	CodeNoStorage   Code = "W0502" // checkpoints that do not outlive the process
	CodePlainSecret Code = "W0503" // a secret written into the file
	CodeRetainOne   Code = "W0504" // only one checkpoint is kept
	CodeRelative    Code = "W0505" // a path that depends on the folder the program is started in
	CodeNoName      Code = "W0506" // a step with state that a checkpoint knows by its place only
	CodeCoarseKey   Code = "W0507" // rows that are told apart replace each other in a sink
	CodeNoTime      Code = "W0508" // windows over records whose time does not tell when they happened
	CodeSpread      Code = "W0509" // changes of a row come to a sink in any order
	CodePace        Code = "W0510" // times of checkpoints that do not go together
	CodePlaces      Code = "W0511" // folders that do not go together
	CodeWeaker      Code = "W0512" // a sink that keeps less than it promises
	CodeExpiry      Code = "W0513" // what a sink prepares can expire before it is published
)
