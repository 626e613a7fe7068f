#!/usr/bin/env bats
# The table of wire.bats inside TLS (lib/tls.bash), of php, ruby and perl.
load ../lib/common
load ../lib/clients
load ../lib/table
load ../lib/tls

setup_file() { table_head; }
setup() {
	common_setup
	make_certificate
}

@test "php: servers that fail inside TLS and in its handshake: an error at the limit, and the fifth opens (A1 A8 A9 A10 A14 C1 C5 C6)" { row php; }
@test "ruby: servers that fail inside TLS and in its handshake: an error at the limit, and the fifth opens (A1 A8 A9 A10 A14 C1 C5 C6)" { row ruby; }
@test "perl: servers that fail inside TLS and in its handshake: an error at the limit, and the fifth opens (A1 A8 A9 A10 A14 C1 C5 C6)" { row perl; }
