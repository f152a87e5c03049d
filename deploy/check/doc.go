// Package check tests what is in deploy/ with the tools that will read it: Helm and the
// types of Kubernetes, the loader of Compose, the makers of packages, systemd-analyze and
// promtool. It is a module of its own, so that the program depends on none of them.
//
// Beside Go it takes systemd-analyze, dpkg-deb, rpm and promtool: tools.sh installs them
// on Debian.
package check
