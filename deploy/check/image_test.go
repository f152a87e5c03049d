package check

import (
	"bufio"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

const dockerfile = deploy + "/docker/Dockerfile"

// instruction is one of a Dockerfile, with the stage that it is in, counted from 0.
type instruction struct {
	stage      int
	word, text string
}

func instructions(t *testing.T) (all []instruction) {
	t.Helper()
	stage := -1
	joined := strings.ReplaceAll(read(t, dockerfile), "\\\n", " ")
	for scan := bufio.NewScanner(strings.NewReader(joined)); scan.Scan(); {
		word, text, _ := strings.Cut(strings.TrimSpace(scan.Text()), " ")
		if word == "" || strings.HasPrefix(word, "#") {
			continue
		}
		if word == "FROM" {
			stage++
		}
		all = append(all, instruction{stage, word, strings.TrimSpace(text)})
	}
	return all
}

func TestTheImageIsSmallAndItsUserHasNoRights(t *testing.T) {
	all := instructions(t)
	last := all[len(all)-1].stage
	seen := map[string]string{}
	for _, i := range all {
		if image := regexp.MustCompile(`(?:^|\s)([\w./-]+(?::[\w.-]+)?)(?:\s+AS\s+\w+)?$`).FindStringSubmatch(i.text); i.word == "FROM" && !strings.Contains(image[1], ":") {
			t.Errorf("%s names no version", i.text)
		}
		if i.word == "ADD" || i.stage == last && i.word == "RUN" {
			t.Errorf("%s %s: the last stage has no shell, and nothing is fetched unseen", i.word, i.text)
		}
		if i.stage == last {
			seen[i.word] = i.text
		}
	}
	if user := seen["USER"]; !regexp.MustCompile(`^[1-9]\d+:[1-9]\d+$`).MatchString(user) {
		t.Errorf("the user is %q: Kubernetes only knows by a number that it is not root", user)
	}
	if !strings.HasPrefix(seen["ENTRYPOINT"], "[") || !strings.HasPrefix(seen["CMD"], "[") {
		t.Error("a shell would stand between signals and the program")
	}
	if !strings.Contains(seen["FROM"], "distroless") {
		t.Errorf("the image is made from %s", seen["FROM"])
	}
}

// sent copies what a build of the image is given: the repository without what
// Dockerfile.dockerignore leaves out.
func sent(t *testing.T) string {
	t.Helper()
	patterns, err := ignorefile.ReadAll(strings.NewReader(read(t, dockerfile+".dockerignore")))
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == ".git" || name == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if out, err := ignored.MatchesOrParentMatches(rel); err != nil || out {
			return err
		}
		write(t, filepath.Join(dir, rel), read(t, path))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTheImageIsBuiltFromAllThatTheProgramNeeds(t *testing.T) {
	dir := sent(t)
	for _, i := range instructions(t) {
		if i.word != "COPY" || strings.Contains(i.text, "--from=") {
			continue
		}
		names := strings.Fields(i.text)
		for _, name := range names[:len(names)-1] {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Errorf("COPY %s: %v", i.text, err)
			}
		}
	}
	write(t, filepath.Join(dir, "cmd/etl/internal/dashboard/dist/index.html"), "")
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/etl")
	list.Dir = dir
	if out, err := list.CombinedOutput(); err != nil {
		t.Errorf("the program lacks files: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "cmd/etl/internal/dashboard/package-lock.json")); err != nil {
		t.Errorf("the dashboard lacks files: %v", err)
	}
	if tests, err := filepath.Glob(filepath.Join(dir, "pipeline/*_test.go")); err != nil || len(tests) > 0 {
		t.Errorf("tests are sent, and each change of one builds the image anew: %v, %v", tests, err)
	}
}
