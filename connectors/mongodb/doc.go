// Package mongodb writes documents to MongoDB, or to what speaks its protocol.
package mongodb
