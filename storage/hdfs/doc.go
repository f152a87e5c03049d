// Package hdfs keeps files on HDFS.
//
// # Names are given by a rename that replaces nothing
//
// A file appears under its name whole or not at all, and a name is given once. HDFS
// has two ways to give a name to one of several callers: create without overwriting,
// and rename2 without overwriting. Create shows an empty file before there is
// anything in it, also when its writer crashes. So every file, and an empty claim
// too, is written under a random hidden name in the folder that it belongs to,
// closed, and renamed. The namenode looks at the new name and moves the file under
// one lock and one entry of its log, so of any number of callers one succeeds, and the
// others hear that the name is taken; no guard file is needed that a crash could leave.
//
// The library's Rename asks for rename2 with overwriting and has no other. The request
// is therefore sent through the library's own connection (rpc.go). If that is not
// possible, because the library is built otherwise, the call fails; it never falls
// back to a rename that replaces.
//
// # Lost answers
//
// A call whose answer is lost, as a namenode restarts or fails over, is repeated. If
// the repeated rename hears that the name is taken or the hidden file is missing, the
// number of the file under that name, which a rename keeps, tells whether it is this
// one. The hidden name is random and nobody else renames it, so this settles the
// outcome. What is still unknown when the context ends, or patience, is reported as
// an error and may happen later: the contract's unknown outcome.
//
// Staged files lie under hidden names with the token of their handle. Publish is the
// same rename, which uses the hidden name up: the second finds it missing.
//
// # Writing
//
// The library cannot continue a file when a datanode fails. Bytes are therefore kept
// in a local spool until Close, which writes the file in one go; one that fails is
// written again from the start under another name, after the datanodes that it would
// go to were found to answer (nodes.go). Nothing is appended to, and no file is open
// on HDFS over a checkpoint. When Close returns, all datanodes of the pipeline have
// the bytes, and the namenode has at least its minimum of copies in its log. Whether
// they are on the disk of each datanode or in its cache is the cluster's setting
// dfs.datanode.synconclose, as for every client of HDFS.
//
// # What crashes leave
//
// Hidden files of failed tries are removed by the process that made them, at once or
// with its next file. Those of a crashed process are removed by whoever writes to the
// folder, a day later by the namenode's clock. This is safe even if their writer
// lives: it finds its file gone and writes it again. Staged files belong to who holds
// their handle and are never removed here. Spool files have no name, so they go with
// the process.
//
// # Connections
//
// The library's client is not made for concurrent use, knows no context and no time
// limits, and leaves connections and goroutines behind when it fails. So one goroutine
// at a time uses a client, out of a small pool; its connections are this package's,
// with a limit on every read and write, and the end of a context closes them; a client
// that had any trouble is thrown away (client.go, conn.go).
//
// What HDFS itself does not promise: a namenode that has lost its role and does not
// know it yet can answer a question with what was. Clusters fence such a namenode; its
// writes are refused in any case.
package hdfs
