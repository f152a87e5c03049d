package check

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
	"sigs.k8s.io/yaml"
)

// root is the top of the repository.
const root = deploy + "/.."

// packageOf makes a package as a release does, from the first entry of nfpms in
// .goreleaser.yaml: GoReleaser has its own names for a few keys, and adds the program.
func packageOf(t *testing.T, format string) string {
	t.Helper()
	var release struct {
		Nfpms []map[string]any `json:"nfpms"`
	}
	if err := yaml.Unmarshal([]byte(read(t, root+"/.goreleaser.yaml")), &release); err != nil || len(release.Nfpms) != 1 {
		t.Fatalf("%d packages: %v", len(release.Nfpms), err)
	}
	entry := release.Nfpms[0]
	entry["name"], entry["version"], entry["arch"], entry["platform"] = entry["package_name"], "1.2.3", "amd64", "linux"
	for _, key := range []string{"id", "ids", "formats", "package_name", "bindir"} {
		delete(entry, key)
	}
	text, err := yaml.Marshal(entry)
	if err != nil {
		t.Fatal(err)
	}
	// Paths count from the top of the repository.
	t.Chdir(stage(t))
	config, err := nfpm.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	info, err := config.Get(format)
	if err != nil {
		t.Fatal(err)
	}
	info.Contents = append(info.Contents, &files.Content{Source: "dist/etl", Destination: "/usr/bin/etl", FileInfo: &files.ContentFileInfo{Mode: 0o755}})
	packager, err := nfpm.Get(format)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "etl."+format)
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := packager.Package(nfpm.WithDefaults(info), out); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// stage is a copy of what packages take from the repository, with stand-ins for what a
// release builds before: the program, completions and manual pages.
func stage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, path := range []string{
		"deploy/systemd/etl.service", "deploy/systemd/sysusers.conf", "deploy/systemd/tmpfiles.conf", "deploy/systemd/etl.default",
		"deploy/packaging/etl.yaml", "deploy/packaging/postinstall.sh", "deploy/packaging/preremove.sh", "deploy/packaging/postremove.sh",
		"deploy/prometheus/alerts.yaml", "configs/etl.yaml", "docs/deploy.md", "docs/runbook.md", "LICENSE",
	} {
		write(t, filepath.Join(dir, path), read(t, filepath.Join(root, path)))
	}
	for _, path := range []string{"dist/etl", "deploy/packaging/out/man/etl.1.gz", "deploy/packaging/out/man/etl-run.1.gz",
		"deploy/packaging/out/completions/etl.bash", "deploy/packaging/out/completions/etl.zsh", "deploy/packaging/out/completions/etl.fish"} {
		write(t, filepath.Join(dir, path), "#!/bin/sh\n")
	}
	return dir
}

// installed are lines of what packages must hold, by mode, owner and path.
var installed = []string{
	`-rwxr-xr-x root/root /usr/bin/etl`,
	`-rw-r--r-- root/root /usr/lib/systemd/system/etl.service`,
	`-rw-r--r-- root/root /usr/lib/sysusers.d/etl.conf`,
	`-rw-r--r-- root/root /usr/lib/tmpfiles.d/etl.conf`,
	`-rw-r--r-- root/root /etc/etl/etl.yaml`,
	`-rw-r----- root/root /etc/default/etl`,
	`drwx------ root/root /etc/etl/credentials`,
	`-rw-r--r-- root/root /usr/share/man/man1/etl.1.gz`,
	`-rw-r--r-- root/root /usr/share/bash-completion/completions/etl`,
	`-rw-r--r-- root/root /usr/share/doc/etl/copyright`,
}

// lines brings a listing into the form of installed.
func lines(listing, pattern string) string {
	m := regexp.MustCompile(pattern)
	var out strings.Builder
	for line := range strings.Lines(listing) {
		if f := m.FindStringSubmatch(strings.TrimSpace(line)); f != nil {
			out.WriteString(f[1] + " " + f[2] + "/" + f[3] + " /" + strings.Trim(strings.TrimPrefix(f[4], "./"), "/") + "\n")
		}
	}
	return out.String()
}

func wantLines(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains("\n"+got, "\n"+w+"\n") {
			t.Errorf("the package lacks %s; it has\n%s", w, got)
		}
	}
}

func TestTheDebHasAllThatTheServiceNeeds(t *testing.T) {
	deb := packageOf(t, "deb")
	wantLines(t, lines(mustRun(t, "dpkg-deb", "--contents", deb), `^(\S+) (\w+)/(\w+) .*? (\./\S*)$`),
		append(installed, `-rw-r--r-- root/root /usr/share/zsh/vendor-completions/_etl`)...)
	control := t.TempDir()
	mustRun(t, "dpkg-deb", "--control", deb, control)
	if conf := read(t, control+"/conffiles"); !strings.Contains(conf, "/etc/etl/etl.yaml") || !strings.Contains(conf, "/etc/default/etl") {
		t.Errorf("an upgrade overwrites what was configured; kept are only %q", conf)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		mustRun(t, "sh", "-n", control+"/"+script)
	}
	if text := read(t, control+"/control"); !strings.Contains(text, "Package: etl\n") || !strings.Contains(text, "Version: 1.2.3\n") || !strings.Contains(text, "Architecture: amd64\n") {
		t.Error(text)
	}
}

func TestTheRPMHasAllThatTheServiceNeeds(t *testing.T) {
	rpm := packageOf(t, "rpm")
	wantLines(t, lines(mustRun(t, "rpm", "-qplv", rpm), `^(\S+)\s+\d+\s+(\w+)\s+(\w+)\s.*? /(\S*)$`),
		append(installed, `-rw-r--r-- root/root /usr/share/zsh/site-functions/_etl`)...)
	if conf := mustRun(t, "rpm", "-qpc", rpm); !strings.Contains(conf, "/etc/etl/etl.yaml") || !strings.Contains(conf, "/etc/default/etl") {
		t.Errorf("an upgrade overwrites what was configured; kept are only %q", conf)
	}
	if scripts := mustRun(t, "rpm", "-qp", "--scripts", rpm); strings.Count(scripts, "scriptlet") != 3 {
		t.Errorf("the package has not the three scripts:\n%s", scripts)
	}
}
