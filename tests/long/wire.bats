#!/usr/bin/env bats
# Servers that take the connection and then fail, and clients in C as they are: every call ends with an error at its limit, and five in a row
# open the circuit (lib/table.bash). A cell says how many ms after the limit the latest of five calls was ended, or `open`, or what was seen instead.
load ../lib/common
load ../lib/clients
load ../lib/table

setup_file() { table_head; }

@test "curl: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (CD1 A1 A8 A14 C1 C5 C6)" { row curl; }
@test "redis-cli: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (A1 A8 A14 C1 C5 C6)" { row redis-cli; }
