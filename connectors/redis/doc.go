// Package redis finds rows in Redis and writes to it, or to what speaks its protocol,
// alone, as a cluster, or behind Sentinel.
package redis
