package kafka

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

type startKind uint8

const (
	startNone startKind = iota
	startEarliest
	startLatest
	startGroup
	startTimestamp
	startOffsets
)

// Start is where a new job begins to read.
type Start struct {
	kind    startKind
	millis  int64
	offsets map[string]int64 // by "topic/partition"
}

// Until is where a bounded source ends; the zero Until is never.
type Until struct {
	kind    startKind
	millis  int64
	offsets map[string]int64
}

// UnmarshalConfig reads `earliest`, `latest`, `group`, `{timestamp: T}` or `{offsets: {t/0: n}}`.
func (s *Start) UnmarshalConfig(v any) error {
	kind, millis, offsets, err := parsePosition(v)
	if err != nil {
		return fmt.Errorf("%w: write earliest, latest, group, {timestamp: 2026-01-31T00:00:00Z} or {offsets: {topic/0: 42}}", err)
	}
	*s = Start{kind, millis, offsets}
	return nil
}

// UnmarshalConfig reads `latest`, `{timestamp: T}` or `{offsets: {t/0: n}}`.
func (u *Until) UnmarshalConfig(v any) error {
	kind, millis, offsets, err := parsePosition(v)
	if err == nil && (kind == startEarliest || kind == startGroup) {
		err = fmt.Errorf("%v is no end", v)
	}
	if err != nil {
		return fmt.Errorf("%w: write latest, {timestamp: 2026-01-31T00:00:00Z} or {offsets: {topic/0: 42}}", err)
	}
	*u = Until{kind, millis, offsets}
	return nil
}

// Set reports whether the source ends.
func (u Until) Set() bool { return u.kind != startNone }

func parsePosition(v any) (startKind, int64, map[string]int64, error) {
	switch v := v.(type) {
	case string:
		switch v {
		case "earliest":
			return startEarliest, 0, nil, nil
		case "latest":
			return startLatest, 0, nil, nil
		case "group":
			return startGroup, 0, nil, nil
		}
		return 0, 0, nil, fmt.Errorf("%q is no position", v)
	case map[string]any:
		if len(v) != 1 {
			break
		}
		if t, ok := v["timestamp"]; ok {
			millis, err := parseMillis(t)
			return startTimestamp, millis, nil, err
		}
		if o, ok := v["offsets"]; ok {
			offsets, err := parseOffsets(o)
			return startOffsets, 0, offsets, err
		}
	}
	return 0, 0, nil, errors.New("this is no position")
}

func parseMillis(v any) (int64, error) {
	switch v := v.(type) {
	case int64:
		return v, nil
	case time.Time:
		return v.UnixMilli(), nil
	case string:
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05", time.DateOnly} {
			if t, err := time.Parse(layout, v); err == nil {
				return t.UnixMilli(), nil
			}
		}
	}
	return 0, fmt.Errorf("%v is no timestamp (RFC 3339, or milliseconds since 1970)", v)
}

func parseOffsets(v any) (map[string]int64, error) {
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 {
		return nil, errors.New("offsets must be a map from topic/partition to a number")
	}
	out := make(map[string]int64, len(m))
	for id, n := range m {
		if _, _, ok := parseSplitID(id); !ok {
			return nil, fmt.Errorf("%q is no topic/partition", id)
		}
		offset, ok := n.(int64)
		if !ok || offset < 0 {
			return nil, fmt.Errorf("%v is no offset for %s", n, id)
		}
		out[id] = offset
	}
	return out, nil
}

// splitID names a partition in checkpoints.
func splitID(topic string, partition int32) string {
	return topic + "/" + strconv.Itoa(int(partition))
}

func parseSplitID(id string) (topic string, partition int32, ok bool) {
	i := strings.LastIndexByte(id, '/')
	if i <= 0 {
		return "", 0, false
	}
	n, err := strconv.ParseInt(id[i+1:], 10, 32)
	return id[:i], int32(n), err == nil && n >= 0
}
