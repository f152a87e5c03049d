// Package browser drives every page and action of the dashboard in a real browser,
// against a daemon of its own with a broker of its own. The tests proper are in
// drive.test.mjs; its Go test keeps the world around them, and does in it what they ask for.
package browser
