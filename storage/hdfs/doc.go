// Package hdfs keeps files on HDFS.
package hdfs
