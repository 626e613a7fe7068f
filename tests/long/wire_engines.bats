#!/usr/bin/env bats
# The table of wire.bats, of engines that take their time to start.
load ../lib/common
load ../lib/clients
load ../lib/table

setup_file() { table_head; }

@test "node: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (CD1 A1 A8 A14 C1 C5 C6)" { row node; }
@test "HttpClient: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (CD1 A1 A8 A14 C1 C5 C6)" { row HttpClient; }
@test "HttpURLConnection: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (CD1 A1 A8 A14 C1 C5 C6)" { row HttpURLConnection; }
