#!/usr/bin/env bats
# The table of wire.bats, of php, ruby and perl.
load ../lib/common
load ../lib/clients
load ../lib/table

setup_file() { table_head; }

@test "php: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (A1 A8 A14 C1 C5 C6)" { row php; }
@test "ruby: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (A1 A8 A14 C1 C5 C6)" { row ruby; }
@test "perl: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (A1 A8 A14 C1 C5 C6)" { row perl; }
