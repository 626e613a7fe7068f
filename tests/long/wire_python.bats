#!/usr/bin/env bats
# The table of wire.bats, of Python.
load ../lib/common
load ../lib/clients
load ../lib/table

setup_file() { table_head; }

@test "urllib: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (CD1 A1 A8 A14 C1 C5 C6)" { row urllib; }
@test "http.client: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (A1 A8 A14 C1 C5 C6)" { row http.client; }
@test "asyncio: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (A1 A8 A14 C1 C5 C6)" { row asyncio; }
@test "requests: servers that hang, drip, stall, reset, end early or answer 503: an error at the limit, and the fifth opens (CD1 A1 A8 A14 C1 C5 C6)" { row requests; }
