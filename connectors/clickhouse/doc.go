// Package clickhouse writes rows into a table of ClickHouse, over its HTTP interface.
//
// ClickHouse has no transaction that could hold rows and a witness. What it has is a memory
// of the blocks that were inserted last: a block that comes again with the same token adds
// nothing. So rows are kept with the checkpoint in the form that the server reads, and a
// commit sends them in blocks whose bounds follow from the rows alone, each with a token of
// its checkpoint and its place in it. A commit that is repeated, by this process or a later
// one, sends the same blocks with the same tokens.
//
// The server's memory has bounds, so it is needed for as little as can be: a table of the
// sink's own, sluice_commits, says which checkpoint is in as a whole, and of the one under
// way how many blocks are. Only the block that was sent last, and whose answer is missing,
// depends on its token.
package clickhouse
