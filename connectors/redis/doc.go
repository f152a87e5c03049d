// Package redis finds rows in Redis, or what speaks its protocol, alone, as a cluster,
// or behind Sentinel.
package redis
