// Package files reads and writes files of records.
//
// The sink is exactly once. Each writer has one file in the making. A file that
// is complete is staged, which keeps it hidden and durable, and its handle goes
// into the checkpoint as a committable; committing publishes it by a rename.
//
// Bytes of a file that is not complete at a barrier must be in the checkpoint
// without being a file for readers. They are copied into a segment, an immutable
// file of the checkpoint, and each following checkpoint lists the segments again
// until the file is complete. A restore joins the segments of each writer into a
// file of its own; nothing that is open outlives the process, so any retained
// checkpoint can be restored at any parallelism.
//
// What that costs: a byte is written once into the file in the making, which for
// stores that can read back what they are staging (the local one) is the staged
// file itself, so that a file that fills up between two barriers is copied by
// nobody. Only bytes that a barrier finds in an incomplete file, at most
// roll.size a writer, are copied, by Prepare and beside the stream. Stores that
// cannot read back get the file from a local spool when it is complete.
package files
