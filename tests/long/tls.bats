#!/usr/bin/env bats
# The table of wire.bats inside TLS (lib/tls.bash), of clients in C.
load ../lib/common
load ../lib/clients
load ../lib/table
load ../lib/tls

setup_file() { table_head; }
setup() {
	common_setup
	make_certificate
}

@test "curl: servers that fail inside TLS and in its handshake: an error at the limit, and the fifth opens (A1 A8 A9 A10 A14 C1 C5 C6)" { row curl; }
@test "wget: servers that fail inside TLS and in its handshake: an error at the limit, and the fifth opens (A1 A8 A9 A10 A14 C1 C5 C6)" { row wget; }
@test "s_client: servers that fail inside TLS and in its handshake: an error at the limit, and the fifth opens (A1 A8 A9 A10 A14 C1 C5 C6)" { row s_client; }
@test "psql: servers that fail inside TLS and in its handshake: an error at the limit, and the fifth opens (A1 A8 A9 A10 A14 C1 C5 C6)" { row psql; }
@test "git: servers that fail inside TLS and in its handshake: an error at the limit, and the fifth opens (A1 A8 A9 A10 A14 C1 C5 C6)" { row git; }
