# Run by bats once before the first test: the servers and programs of the tests are compiled.
setup_suite() {
	env -u LD_PRELOAD "$(dirname "${BASH_SOURCE[0]}")/lib/build"
}
