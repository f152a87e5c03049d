package checkpoint

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// Names on storage, below the folder of the pipeline and that of the job.
const (
	metadataName   = "_metadata"
	committedName  = "_committed"
	statisticsName = "_statistics"
	claimName      = "claim"
	endedName      = "ended.json"
	sharedDir      = "shared"
	ownerPrefix    = "owner-"
	chkPrefix      = "chk-"
	savePrefix     = "savepoint-"
)

// CheckPipeline reports why name cannot name a pipeline: it must be a DNS label,
// up to 63 lower-case letters, digits and hyphens, with no hyphen at either end.
func CheckPipeline(name string) error {
	ok := len(name) > 0 && len(name) <= 63 && name[0] != '-' && name[len(name)-1] != '-'
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c == '-' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
	}
	if !ok {
		return fmt.Errorf("pipeline name %q must be 1 to 63 lower-case letters, digits and hyphens, with no hyphen at either end", name)
	}
	return nil
}

// NewJobID makes the id of a new job: 32 random hex digits.
func NewJobID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func isJobID(s string) bool { return len(s) == 32 && isHex(s) }

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// number reads a number above 0 in its only spelling.
func number(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// ownerName is the file that takes a generation.
func ownerName(g uint64) string { return ownerPrefix + decimal(g) }

// ownerRecord is the file that says what the owner of a generation restored.
func ownerRecord(g uint64) string { return ownerPrefix + decimal(g) + ".json" }

// parseOwner reads the generation in the name of an owner's file, and whether it
// is the record.
func parseOwner(name string) (g uint64, record, ok bool) {
	rest, ok := strings.CutPrefix(name, ownerPrefix)
	if !ok {
		return 0, false, false
	}
	rest, record = strings.CutSuffix(rest, ".json")
	g, ok = number(rest)
	return g, record, ok
}

// chkName is the folder of a checkpoint within its job's.
func chkName(n uint64) string { return chkPrefix + decimal(n) }

func parseChk(name string) (uint64, bool) {
	rest, ok := strings.CutPrefix(name, chkPrefix)
	if !ok {
		return 0, false
	}
	return number(rest)
}

// chkNumbers are the numbers of the checkpoints among folders, rising.
func chkNumbers(dirs []string) []uint64 {
	var numbers []uint64
	for _, d := range dirs {
		if n, ok := parseChk(d); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// sharedName is the file of a checkpoint's attempt in its job's shared folder.
// unique is random, so that no name is used twice even by a repeated attempt.
func sharedName(id ID, unique string) string {
	return decimal(id.Generation) + "-" + decimal(id.Number) + "-" + unique
}

func parseShared(name string) (ID, bool) {
	g, rest, _ := strings.Cut(name, "-")
	n, unique, _ := strings.Cut(rest, "-")
	generation, gok := number(g)
	num, nok := number(n)
	return ID{Generation: generation, Number: num}, gok && nok && unique != "" && isHex(unique)
}

// savepointName is the folder of a savepoint: it shows the job's first six digits, and
// unique, which is random, keeps it apart from all others.
func savepointName(job, unique string) string { return savePrefix + job[:6] + "-" + unique }

func isSavepointName(name string) bool {
	rest, ok := strings.CutPrefix(name, savePrefix)
	job, unique, _ := strings.Cut(rest, "-")
	return ok && len(job) == 6 && isHex(job) && len(unique) == 12 && isHex(unique)
}

// checkFilePath allows a file below the metadata's folder, and one directly in the
// shared folder beside it, and nothing else.
func checkFilePath(file string) error {
	local := strings.TrimPrefix(file, "../"+sharedDir+"/")
	if local == "." || !fs.ValidPath(local) || local != file && strings.Contains(local, "/") || strings.ContainsAny(local, "\\\x00") {
		return fmt.Errorf("file path %q is neither within the checkpoint's folder nor ../%s/NAME", file, sharedDir)
	}
	return nil
}
