// Package elasticsearch writes documents to Elasticsearch and OpenSearch, through their
// bulk interface.
package elasticsearch
