package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/pipeline"
)

// parseOffsets reads the values of --set-offsets: topic/partition=N, or earliest or latest
// in the place of N.
func parseOffsets(values []string) (map[string]int64, error) {
	if len(values) == 0 {
		return nil, nil
	}
	out := map[string]int64{}
	for _, v := range values {
		split, at, ok := strings.Cut(v, "=")
		topic, partition, _ := cutLast(split, "/")
		if _, err := strconv.ParseUint(partition, 10, 31); !ok || topic == "" || err != nil {
			return nil, fmt.Errorf("--set-offsets %s: write topic/partition=offset, as in orders/0=1200", v)
		}
		if _, twice := out[split]; twice {
			return nil, fmt.Errorf("--set-offsets names %s twice", split)
		}
		switch at {
		case "earliest":
			out[split] = pipeline.Earliest
			continue
		case "latest":
			out[split] = pipeline.Latest
			continue
		}
		n, err := strconv.ParseInt(at, 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("--set-offsets %s: %s is no offset: write a number from 0 on, earliest or latest", v, at)
		}
		out[split] = n
	}
	return out, nil
}

// parseCoordinates reads a record's place: topic/partition@offset.
func parseCoordinates(text string) (c pipeline.Coordinates, err error) {
	at := strings.LastIndexByte(text, '@')
	if at < 0 || !strings.Contains(text[:at], "/") {
		return c, fmt.Errorf("%s names no record: write topic/partition@offset, as in orders/0@1200", text)
	}
	c.Split = text[:at]
	if c.Offset, err = strconv.ParseInt(text[at+1:], 10, 64); err != nil || c.Offset < 0 {
		return c, fmt.Errorf("%s names no record: %s is no offset", text, text[at+1:])
	}
	return c, nil
}

// moves are the positions that the flags change.
func (f *runFlags) moves() (offsets map[string]int64, skip []pipeline.Coordinates, err error) {
	if offsets, err = parseOffsets(f.setOffsets); err != nil {
		return nil, nil, err
	}
	for _, text := range f.skip {
		c, err := parseCoordinates(text)
		if err != nil {
			return nil, nil, fmt.Errorf("--skip: %w", err)
		}
		skip = append(skip, c)
	}
	return offsets, skip, nil
}
