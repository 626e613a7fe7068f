#!/usr/bin/env bats
# The table of wire.bats, of libpq and of programs whose bytes no hook sees.
load ../lib/common
load ../lib/clients
load ../lib/table

setup_file() { table_head; }

@test "psql: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (A1 A8 A14 C1 C5 C6)" { row psql; }
@test "stdio: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (A1 A8 A14 C1 C5 C6)" { row stdio; }
@test "io_uring: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (A1 A8 A14 C1 C5 C6)" { row io_uring; }
@test "wget: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (A1 A8 A14 C1 C5 C6)" { row wget; }
